"""The machine of the host sandbox: the driver's own system, with some directories private to the trial."""

import asyncio
import functools
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drydock.sandbox.host_view import host_view
from drydock.sandbox.machine import Machine
from drydock.sandbox.spawn import Spawned, spawn
from drydock.sandbox.transfer_pool import in_transfer_pool


class HostMachine(Machine):
    """An unconfined machine; `private` names the top-level directories that it has to itself."""

    def __init__(self, private: Sequence[str], *, state_dir: Path, max_output_bytes: int) -> None:
        super().__init__(state_dir, id_base=0, max_output_bytes=max_output_bytes)
        self._private = tuple(private)
        self._directory = state_dir / self.name
        self.root = -1

    def _directory_on_disk(self) -> Path | None:
        return self._directory

    async def _build(self) -> None:
        await in_transfer_pool(self._make_directories)

    async def _launch(self) -> Spawned:
        return await asyncio.get_running_loop().run_in_executor(_launch_thread(), self._spawn)

    def _spawn(self) -> Spawned:
        return spawn(
            [],
            host_view(self._directory, self._private),
            [os.path.realpath(sys.executable)],
            gate_option="--block-fd",
            filter_program=None,
            at_gate=self._record,
            label=self.name,
        )

    def _enter(self, spawned: Spawned) -> None:
        self._leave()
        self.root = os.open(f"/proc/{spawned.init_pid}/root", os.O_PATH | os.O_DIRECTORY)

    async def _dismantle(self) -> None:
        self._leave()
        await in_transfer_pool(shutil.rmtree, self._directory, True)

    def _make_directories(self) -> None:
        self._directory.mkdir(mode=0o700)
        for name in self._private:
            (self._directory / name).mkdir()
            (self._directory / name).chmod(0o1777 if name == "tmp" else 0o755)

    def _leave(self) -> None:
        if self.root >= 0:
            os.close(self.root)
            self.root = -1


@functools.cache
def _launch_thread() -> ThreadPoolExecutor:
    """One thread that lives as long as the driver: bubblewrap dies with the thread that starts it."""
    return ThreadPoolExecutor(1, thread_name_prefix="sandbox-launch")

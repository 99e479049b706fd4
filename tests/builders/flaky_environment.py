"""Sandboxes that break on purpose: host sandboxes whose life goes wrong at a chosen point.

`fail_starts` counts in a file how many starts have failed, over all trials, so that a later one works.
"""

from pathlib import Path
from typing import Any

from drydock.errors import SandboxError
from drydock.sandbox.host import HostEnvironment


class FlakyEnvironment(HostEnvironment):
    def __init__(
        self,
        *args: Any,
        fail_starts: int = 0,
        counter: str = "",
        fail_kill: bool = False,
        fail_stop: bool = False,
        fail_tests: bool = False,
        **kwargs: Any,
    ) -> None:
        self._fail_starts = fail_starts
        self._counter = Path(counter)
        self._fail_kill = fail_kill
        self._fail_stop = fail_stop
        self._fail_tests = fail_tests
        super().__init__(*args, **kwargs)

    async def start(self, force_build: bool) -> None:
        if self._fail_starts:
            with self._counter.open("a+") as file:
                file.seek(0)
                failed = len(file.read())
                if failed < self._fail_starts:
                    file.write("x")
                    raise SandboxError("the machine is out of sandboxes for a moment")
        await super().start(force_build)

    async def kill_processes(self) -> None:
        if self._fail_kill:
            raise SandboxError("process 1 does not answer")
        await super().kill_processes()

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        if self._fail_tests and target_dir == "/tests":
            raise OSError("no space left on device")
        await super().upload_dir(source_dir, target_dir)

    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        if self._fail_stop:
            raise OSError("device or resource busy")

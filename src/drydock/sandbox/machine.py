"""One running sandbox: its file system, its process 1, and the commands that run in it.

A machine owns everything it started and gives it back in `stop`, in an order in which nothing can be left. Killing
what runs (`kill_processes`) is done by process 1, which untrusted code can neither signal, trace nor replace; if it
does not answer, it is killed from outside and a new one is started on the same file system.
"""

import asyncio
import os
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from drydock.deadline import deadline
from drydock.errors import DeadlineExceeded, SandboxError
from drydock.sandbox.channel import MAX_ARGUMENT_BYTES, Channel, Completed
from drydock.sandbox.records import Claim
from drydock.sandbox.spawn import Spawned
from drydock.sandbox.uncancelled import to_its_end

SHELL = "/bin/bash"
_START_WAIT_S = 20.0
_DEATH_WAIT_S = 15.0


class Machine(ABC):
    """Base of the local and the host machine, which say how process 1 is launched and what it stands on.

    root: O_PATH descriptor of the machine's root directory while it is started.
    id_base: host id of uid 0 of the machine.
    """

    root: int
    id_base: int

    def __init__(self, state_dir: Path, *, id_base: int, max_output_bytes: int) -> None:
        self.name = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.id_base = id_base
        self._state_dir = state_dir
        self._max_output_bytes = max_output_bytes
        self._claim: Claim | None = None
        self._spawned: Spawned | None = None
        self._channel: Channel | None = None

    @property
    def init_pid(self) -> int | None:
        """Host pid of process 1, while there is one."""
        return self._spawned.init_pid if self._spawned else None

    async def start(self) -> None:
        """Bring the machine up. On failure and on cancellation, everything is taken down again before this raises."""
        try:
            await to_its_end(self._start())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kill all processes and take everything away; can be called in any state, and again."""
        await to_its_end(self._stop())

    async def kill_processes(self) -> None:
        """Kill every process in the machine; the file system stays, and commands can be run afterwards."""
        channel = self._require_channel()
        try:
            await channel.kill_all()
        except (DeadlineExceeded, SandboxError):
            await to_its_end(self._restart())

    async def run(
        self, command: str, *, user: str, cwd: str, env: Mapping[str, str], timeout_s: float | None
    ) -> Completed:
        """Run a shell command; see `Channel.run`."""
        if len(command) * 4 > MAX_ARGUMENT_BYTES and len(command.encode(errors="surrogateescape")) > MAX_ARGUMENT_BYTES:
            argv, script = [SHELL, "/dev/fd/3"], command
        else:
            argv, script = [SHELL, "-c", command], None
        return await self._require_channel().run(argv, user=user, cwd=cwd, env=env, script=script, timeout_s=timeout_s)

    async def run_program(self, argv: Sequence[str], *, user: str, cwd: str, env: Mapping[str, str]) -> Completed:
        """Run a program without a time limit; see `Channel.run`."""
        return await self._require_channel().run(argv, user=user, cwd=cwd, env=env)

    @abstractmethod
    def _directory_on_disk(self) -> Path | None:
        """The directory below the state directory that the machine's files are in, None where it has none."""

    @abstractmethod
    async def _build(self) -> None:
        """Put the file system together."""

    @abstractmethod
    async def _launch(self) -> Spawned:
        """Start process 1 on it and record it."""

    @abstractmethod
    def _enter(self, spawned: Spawned) -> None:
        """Set `root`, now that process 1 is ready."""

    @abstractmethod
    async def _dismantle(self) -> None:
        """Take the file system away; every process is dead."""

    def _record(self, pid: int) -> None:
        """Record process 1, which waits at its gate."""
        if self._claim is None:
            raise SandboxError("the sandbox is not recorded")
        self._claim.update(init_pid=pid)

    def _require_channel(self) -> Channel:
        if self._channel is None:
            raise SandboxError("the sandbox is not running")
        return self._channel

    async def _start(self) -> None:
        self._claim = Claim(self._state_dir, self.name, self._directory_on_disk())
        await self._build()
        await self._boot()

    async def _boot(self) -> None:
        spawned = self._spawned = await self._launch()
        self._channel = Channel(spawned.connection, id_base=self.id_base, max_output_bytes=self._max_output_bytes)
        try:
            async with deadline("a sandbox to start", _START_WAIT_S, spawned.complaint):
                await self._channel.ready()
        except SandboxError as error:
            raise SandboxError(f"the sandbox did not start: {spawned.complaint() or error}") from error
        self._enter(spawned)

    async def _halt(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._spawned is not None:
            spawned, self._spawned = self._spawned, None
            spawned.kill()
            try:
                await _end_of(spawned.process)
            except DeadlineExceeded:
                spawned.process.kill()
                raise
            finally:
                spawned.close()
            spawned.process.wait()

    async def _restart(self) -> None:
        await self._halt()
        await self._boot()

    async def _stop(self) -> None:
        try:
            await self._halt()
        finally:
            await self._dismantle()
        if self._claim is not None:
            self._claim.release()
            self._claim = None


async def _end_of(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a child process."""
    loop = asyncio.get_running_loop()
    if process.poll() is not None:
        return
    descriptor = os.pidfd_open(process.pid)
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ended.done() else ended.set_result(None))
    try:
        async with deadline("the processes of a sandbox to die", _DEATH_WAIT_S):
            await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

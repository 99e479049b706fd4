"""The operating-system process of a worker: started here, or found again by an API process that did not start it.

A process is known by its socket and a nonce that only it and the store hold; its pid is checked against the kernel's
word about the socket (SO_PEERCRED), so that a number that was given to another process is never killed for it.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from drydock.errors import WorkerLost
from drydock.service.channel import ChannelClosed, Message, ServiceChannel
from drydock.service.gpus import cuda_visible
from drydock.service.logs import CONSOLE
from drydock.service.worker_spec import WorkerLimits, WorkerSpec

LISTEN_S = 60.0
"""How long a new process may take until it listens (interpreter start; the model comes later)."""
HELLO_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What finds a process again."""

    socket: str
    nonce: str
    pid: int

    def row(self) -> dict[str, Any]:
        """As the store keeps it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: dict[str, Any] | None) -> "WorkerIdentity | None":
        """From the store; None where it holds none."""
        if not row or "nonce" not in row:
            return None
        return cls(row["socket"], row["nonce"], row["pid"])


class WorkerProcess:
    """One process and the way to reach it. Owner: its WorkerGroup."""

    def __init__(self, identity: WorkerIdentity, child: asyncio.subprocess.Process | None) -> None:
        self.identity = identity
        self._child = child

    @classmethod
    async def start(cls, spec: WorkerSpec, limits: WorkerLimits, hardware: str | None, devices: Sequence[int]) -> Self:
        """A new process, in a session of its own, that logs to the spec's folder."""
        spec.log_dir.mkdir(parents=True, exist_ok=True)
        with (spec.log_dir / CONSOLE).open("ab") as console:
            return await cls._spawn(limits, console, _environment(spec.threads, hardware, devices))

    @classmethod
    async def start_unnamed(cls, limits: WorkerLimits, hardware: str | None) -> Self:
        """A new process for a sub-job without GPUs that is not known yet; it logs once it is told which."""
        return await cls._spawn(limits, asyncio.subprocess.DEVNULL, _environment(1, hardware, ()))

    @classmethod
    async def _spawn(cls, limits: WorkerLimits, console: BinaryIO | int, environment: dict[str, str]) -> Self:
        nonce = secrets.token_hex(16)
        path = limits.run_dir / f"{nonce[:12]}.sock"
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "drydock.service.worker", str(path), nonce),
            *(str(limits.outlive_s), str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            env=environment,
        )
        return cls(WorkerIdentity(str(path), nonce, child.pid), child)

    @property
    def alive(self) -> bool:
        """Whether a process that was started here still runs."""
        return self._child is not None and self._child.returncode is None

    @property
    def pid(self) -> int:
        """Process id; also the id of its session and process group."""
        return self.identity.pid

    async def attach(self) -> tuple[ServiceChannel, dict[str, Any]]:
        """A connection to the process and its `hello`.

        Raises WorkerLost when it does not answer, or another process than the one meant does.
        """
        channel = await self._connect()
        try:
            async with asyncio.timeout(HELLO_S):
                await channel.send(Message({"op": "attach", "nonce": self.identity.nonce}))
                hello = (await channel.receive()).header.get("hello") or {}
            if hello.get("nonce") != self.identity.nonce:
                raise WorkerLost(f"pid {self.pid} is another process than the worker that was started")
        except (ChannelClosed, TimeoutError) as error:
            await channel.close()
            raise WorkerLost(f"the process (pid {self.pid}) does not answer on its socket") from error
        except BaseException:
            await channel.close()
            raise
        return channel, hello

    def kill(self) -> None:
        """Kills the whole process group: a worker is its own session's leader."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> str:
        """Waits for the end of the process; how it went."""
        if self._child is None:
            await _wait_for(self.pid)
            return "ended (a restarted service cannot know with which code)"
        code = await self._child.wait()
        Path(self.identity.socket).unlink(missing_ok=True)
        return _death(code)

    async def _connect(self) -> ServiceChannel:
        path = Path(self.identity.socket)
        ends = time.monotonic() + LISTEN_S
        while True:
            try:
                channel = await ServiceChannel.connect(path)
            except OSError as error:
                starting = self._child is not None and self._child.returncode is None
                if not starting or time.monotonic() > ends:
                    raise WorkerLost(f"nobody listens on the socket of pid {self.pid}") from error
                await asyncio.sleep(0.02)
                continue
            peer = _peer(channel)
            if peer is not None and peer != (self.pid, os.getuid()):
                await channel.close()
                raise WorkerLost(f"the socket of pid {self.pid} belongs to another process")
            return channel


@dataclass(frozen=True, slots=True)
class AttachedProcess:
    """A process with a connection to it."""

    process: WorkerProcess
    channel: ServiceChannel


def _peer(channel: ServiceChannel) -> tuple[int, int] | None:
    """Process and user id of who listens at the other end; None where the system does not tell."""
    sock = channel.socket
    if sock is None or not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid, uid


async def _wait_for(pid: int) -> None:
    """Waits for the end of a process that is no child."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                await asyncio.sleep(0.05)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: over.done() or over.set_result(None))
    try:
        await over
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _environment(threads: int, hardware: str | None, devices: Sequence[int]) -> dict[str, str]:
    """The service's environment without its secrets. Waiting OpenMP threads sleep: on a busy machine spinning ones take
    the cores that the others need (measured: 3 times slower with two threads on two shared cores)."""
    kept = {key: value for key, value in os.environ.items() if key not in _SECRETS}
    kept.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if hardware is not None:
        kept["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the pool counts them
        kept["CUDA_VISIBLE_DEVICES"] = cuda_visible(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {**kept, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}


_SECRETS = frozenset({"DRYDOCK_SERVICE_TOKEN", "DRYDOCK_SERVICE_DATABASE_URL"})


def _death(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"

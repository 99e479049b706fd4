"""The process of one sub-job, seen from the API process: start it, talk to it, watch it, end it.

One process a sub-job for now; callers only know sub-job ids and operations, so that more processes can stand behind
one group later. The group owns the process: whatever happens to the job, `stop` leaves nothing of it running. When
the process dies by itself every open call fails with WorkerLost, naming how it died and what it last printed, and
`lost` resolves with the same text.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.errors import WorkerLost
from drydock.service.channel import ChannelClosed, Message, ServiceChannel
from drydock.service.logs import CONSOLE, last_lines

logger = logging.getLogger(__name__)

_DEATH_S = 2.0
_LAST_LINES = 8


class WorkerStopped(Exception):
    """The job ended, and with it the call that was in flight."""


class OperationError(Exception):
    """An operation failed inside the worker, which lives on."""

    def __init__(self, message: str, *, error_type: str, blame: str, cancelled: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.error_type = error_type
        self.blame = blame
        self.cancelled = cancelled


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker process is started with; `config` is the sub-job's configuration as created."""

    sub_job_id: str
    job_type: str
    config: dict[str, Any]
    log_dir: Path
    threads: int

    def first_message(self) -> Message:
        """What tells the new process what to be."""
        return Message(
            {
                "op": "start",
                "id": 0,
                "sub_job_id": self.sub_job_id,
                "job_type": self.job_type,
                "config": self.config,
                "log_dir": str(self.log_dir),
                "threads": self.threads,
            }
        )


class WorkerGroup:
    """One sub-job's process. Owner: the job that made it."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._ids = itertools.count(1)
        self._process: asyncio.subprocess.Process | None = None
        self._channel: ServiceChannel | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._stopped: str | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return self._process.pid if self._process else None

    @property
    def open_calls(self) -> int:
        """Calls in flight; the least loaded replica is chosen by it."""
        return len(self._calls)

    async def start(self) -> dict[str, Any]:
        """Starts the process and waits until its engine is ready; the engine's description.

        Raises OperationError (the engine refused its configuration) or WorkerLost (the process died).
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs, _closed_on_error(ours):
            self.spec.log_dir.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "drydock.service.worker", str(theirs.fileno()), str(os.getpid())]
            with (self.spec.log_dir / CONSOLE).open("ab") as console:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=_environment(self.spec.threads),
                )
            self._channel = await ServiceChannel.open(ours)
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self.spec.sub_job_id}")
        reply = await self._exchange(0, self.spec.first_message())
        return reply.header.get("result") or {}

    async def call(self, op: str, payload: bytes = b"", **fields: Any) -> Message:
        """Sends one operation and waits for its answer; operations are taken up in the order sent.

        Raises OperationError, WorkerLost or WorkerStopped.
        """
        number = next(self._ids)
        return await self._exchange(number, Message({"op": op, "id": number, **fields}, payload))

    async def notify(self, op: str, **fields: Any) -> None:
        """Sends a message that has no answer; a worker that is gone is no error."""
        if self._channel is not None:
            try:
                await self._channel.send(Message({"op": op, "id": -1, **fields}))
            except ChannelClosed:
                logger.debug("%s is gone; %s not sent", self.spec.sub_job_id, op)

    async def stop(self, reason: str) -> None:
        """Kills the process and its children and fails the calls in flight with WorkerStopped(reason)."""
        self._stopped = reason
        self._kill()
        if self._watcher is not None:
            await self._watcher
        elif self._process is not None:
            await self._process.wait()
        self._fail_calls(WorkerStopped(reason))

    async def _exchange(self, number: int, message: Message) -> Message:
        if self._stopped is not None:
            raise WorkerStopped(self._stopped)
        if self._channel is None or self.lost.done():
            raise WorkerLost(self.lost.result() if self.lost.done() else f"{self.spec.sub_job_id} is not started")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            with contextlib.suppress(ChannelClosed):  # the watcher fails the call, and says how the process died
                await self._channel.send(message)
            reply = await answer
        finally:
            self._calls.pop(number, None)
        error = reply.header.get("error")
        if error is not None:
            raise OperationError(
                error["message"],
                error_type=error["type"],
                blame=error["blame"],
                cancelled=error.get("cancelled", False),
            )
        return reply

    async def _watch(self) -> None:
        """Hands answers to their callers until the process is gone, then says how it went."""
        assert self._channel is not None
        assert self._process is not None
        try:
            while True:
                reply = await self._channel.receive()
                answer = self._calls.get(reply.header["id"])
                if answer is not None and not answer.done():
                    answer.set_result(reply)
        except ChannelClosed:
            pass
        try:
            async with asyncio.timeout(_DEATH_S):
                code = await self._process.wait()
        except TimeoutError:
            self._kill()
            code = await self._process.wait()
        self._kill()
        await self._channel.close()
        if self._stopped is not None:
            return
        lines = await asyncio.to_thread(last_lines, self.spec.log_dir, _LAST_LINES)
        reason = f"the process of {self.spec.sub_job_id} (pid {self._process.pid}) {_death(code)}" + _quoted(lines)
        logger.error("%s", reason)
        if not self.lost.done():
            self.lost.set_result(reason)
        self._fail_calls(WorkerLost(reason))

    def _fail_calls(self, error: Exception) -> None:
        for answer in list(self._calls.values()):
            if not answer.done():
                answer.set_exception(error)

    def _kill(self) -> None:
        """Kills the whole process group: a worker is its own session's leader."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return


@contextlib.contextmanager
def _closed_on_error(sock: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sock.close()
        raise


def _environment(threads: int) -> dict[str, str]:
    """The driver's environment without its secret. Waiting OpenMP threads sleep: on a busy machine spinning ones take
    the cores that the others need (measured: 3 times slower with two threads on two shared cores)."""
    kept = {key: value for key, value in os.environ.items() if key != "DRYDOCK_SERVICE_TOKEN"}
    kept.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return {**kept, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}


def _death(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _quoted(lines: Sequence[str]) -> str:
    return "; its last log lines: " + " | ".join(lines) if lines else "; it left no log"

"""The driver's end of the socket to process 1 of a sandbox (see `pid1`): starts commands and hears of their end.

A command costs one message each way; nothing is spawned on the driver's side. What comes back is written by a
process that untrusted code may have got hold of, so every message is checked and none can do more than end a command
that was running here.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drydock.deadline import deadline
from drydock.errors import SandboxError
from drydock.sandbox.output import Capture, StrayPipes

TIMEOUT_STATUS = 124
MAX_REQUEST_BYTES = 150_000
"""Longest request: command line and environment together, without the script."""

MAX_ARGUMENT_BYTES = 120_000
"""Longest single argument handed to a program; Linux refuses 128 KiB."""

_KILL_WAIT_S = 5.0
_SEND_RETRY_S = 0.005


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: exit code (128 + n for signal n, 124 for its time limit) and what was kept of its output."""

    return_code: int
    stdout: bytes
    stderr: bytes


class Channel:
    """Commands and kills over one connected SOCK_SEQPACKET socket, of which it becomes the owner."""

    def __init__(self, connection: socket.socket, *, id_base: int, max_output_bytes: int) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._id_base = id_base
        self._max_output_bytes = max_output_bytes
        self._counter = 0
        self._ends: dict[str, asyncio.Future[int]] = {}
        self._strays = StrayPipes()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._all_dead: asyncio.Future[None] | None = None
        self._closed = False
        self._loop.add_reader(connection.fileno(), self._readable)

    async def ready(self) -> None:
        """Wait for the first message of process 1."""
        await self._ready

    async def run(
        self,
        argv: Sequence[str],
        *,
        user: str,
        cwd: str,
        env: Mapping[str, str],
        script: str | None = None,
        timeout_s: float | None = None,
    ) -> Completed:
        """Run a program and wait for its end; a `script` is readable by it as /dev/fd/3.

        On its time limit, or when the caller is cancelled, the command's processes are killed. Raises SandboxError
        when the request cannot be sent or the sandbox ends meanwhile.
        """
        self._counter += 1
        key = str(self._counter)
        request = _request(key, argv, user, cwd, env)
        end: asyncio.Future[int] = self._loop.create_future()
        self._ends[key] = end
        stdout, stderr = Capture(self._max_output_bytes), Capture(self._max_output_bytes)
        sent = False
        try:
            await self._send_with_streams(request, stdout, stderr, script)
            sent = True
            try:
                async with asyncio.timeout(timeout_s):
                    status = await asyncio.shield(end)
                return_code = 128 + (status & 127) if status & 127 else status >> 8
            except TimeoutError:
                await self._kill(key, end)
                return_code = TIMEOUT_STATUS
            return Completed(return_code, stdout.finish(), stderr.finish())
        except asyncio.CancelledError:
            if sent and not end.done():
                with contextlib.suppress(OSError):
                    self._socket.send(f"K\0{key}".encode())
            raise
        finally:
            del self._ends[key]
            for capture in (stdout, stderr):
                if self._closed or not sent:
                    capture.close()
                else:
                    self._strays.adopt(capture)

    async def kill_all(self, timeout_s: float = _KILL_WAIT_S) -> None:
        """Kill everything but process 1 and wait until it is dead; commands under way end as killed.

        Raises DeadlineExceeded when process 1 does not confirm.
        """
        if self._all_dead is None or self._all_dead.done():
            self._all_dead = self._loop.create_future()
            await self._send(b"A", [])
        async with deadline("the sandbox's processes to die", timeout_s):
            await asyncio.shield(self._all_dead)

    def close(self) -> None:
        """Close the socket, which ends the sandbox; commands under way fail."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._strays.close()
        for waiting in (self._ready, self._all_dead, *self._ends.values()):
            if waiting is not None and not waiting.done():
                waiting.set_exception(SandboxError("the sandbox has ended"))
                waiting.exception()

    async def _send_with_streams(self, request: bytes, stdout: Capture, stderr: Capture, script: str | None) -> None:
        """Send a request with the write ends of its streams, which are then only the command's."""
        descriptors = [stdout.writer, stderr.writer]
        try:
            if self._id_base:
                for writer in descriptors:
                    os.fchown(writer, self._id_base, self._id_base)
            if script is not None:
                descriptors.append(_script_file(script))
            await self._send(request, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    async def _kill(self, key: str, end: asyncio.Future[int]) -> None:
        await self._send(f"K\0{key}".encode(), [])
        try:
            async with asyncio.timeout(_KILL_WAIT_S):
                await asyncio.shield(end)
        except TimeoutError:
            raise SandboxError("a command survived its time limit and could not be killed") from None

    async def _send(self, message: bytes, descriptors: list[int]) -> None:
        while True:
            if self._closed:
                raise SandboxError("the sandbox has ended")
            try:
                socket.send_fds(self._socket, [message], descriptors) if descriptors else self._socket.send(message)
            except BlockingIOError:
                await asyncio.sleep(_SEND_RETRY_S)
            except OSError as error:
                raise SandboxError(f"the sandbox cannot be reached: {error.strerror}") from error
            else:
                return

    def _readable(self) -> None:
        for _ in range(64):
            try:
                data = self._socket.recv(8192)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            self._handle(data.decode("utf-8", "replace").split("\0"))

    def _handle(self, message: list[str]) -> None:
        match message:
            case ["H"] if not self._ready.done():
                self._ready.set_result(None)
            case ["A"] if self._all_dead is not None and not self._all_dead.done():
                self._all_dead.set_result(None)
            case ["D", key, status] if status.isdecimal() and int(status) <= 0xFFFF:
                end = self._ends.get(key)
                if end is not None and not end.done():
                    end.set_result(int(status))
            case _:
                pass


def _request(key: str, argv: Sequence[str], user: str, cwd: str, env: Mapping[str, str]) -> bytes:
    fields = ["R", key, user, cwd, str(len(env)), *(f"{name}={value}" for name, value in env.items()), *argv]
    if any("\0" in field for field in fields):
        raise SandboxError("a command, its directory or its environment contains a NUL character")
    request = "\0".join(fields).encode("utf-8", "surrogateescape")
    if len(request) > MAX_REQUEST_BYTES:
        raise SandboxError(f"a command and its environment are {len(request)} bytes; {MAX_REQUEST_BYTES} are possible")
    return request


def _script_file(script: str) -> int:
    descriptor = os.memfd_create("command", os.MFD_CLOEXEC)
    view = memoryview(script.encode("utf-8", "surrogateescape"))
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor

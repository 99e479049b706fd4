"""What a command prints: bounded in memory, never waited for after the command has ended.

A capture keeps the first and the last half of its limit and counts what it drops between them. A background process
may hold the pipe after its command is gone; the pipe then stays open and is emptied now and then, so that a server
which logs to it goes on working, and a flood costs next to nothing.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable

_CHUNK = 1 << 16
_FLOOD_CHUNK = 1 << 20
_FLOOD_PAUSE_S = 0.005
_LAST_READS = 32
_STRAY_PAUSE_S = 1.0
_STRAY_READS = 4


class Capture:
    """The read end of one pipe while a command runs; the caller passes the other, `writer`, on and closes it."""

    def __init__(self, limit_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._half = max(1, limit_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._chunk = _CHUNK
        self._pause: asyncio.TimerHandle | None = None
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        self.open = True
        os.set_blocking(self.reader, False)
        self._loop.add_reader(self.reader, self._readable)

    def finish(self) -> bytes:
        """Take what is in the pipe now, stop listening, return what was kept; the pipe stays open unless at its end."""
        for _ in range(_LAST_READS):
            if not self.open or not self._read():
                break
        self.stop_listening()
        dropped = self._total - len(self._head) - len(self._tail)
        if dropped <= 0:
            return bytes(self._head + self._tail)
        return bytes(self._head) + f"\n... [{dropped} bytes of output dropped] ...\n".encode() + bytes(self._tail)

    def close(self) -> None:
        if self.open:
            self.stop_listening()
            self.open = False
            os.close(self.reader)

    def _readable(self) -> None:
        if self._read() and self._total > 2 * self._half and self._pause is None:
            if self._chunk != _FLOOD_CHUNK:
                self._chunk = _FLOOD_CHUNK
                with contextlib.suppress(OSError):
                    fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, _FLOOD_CHUNK)
            self._loop.remove_reader(self.reader)
            self._pause = self._loop.call_later(_FLOOD_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self.open:
            self._loop.add_reader(self.reader, self._readable)

    def _read(self) -> bool:
        try:
            data = os.read(self.reader, self._chunk)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]
        return True

    def stop_listening(self) -> None:
        """Leave what comes from now on in the pipe."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        elif self.open:
            self._loop.remove_reader(self.reader)


class StrayPipes:
    """Pipes that background processes still hold: emptied once a second, closed at their end or with the sandbox."""

    def __init__(self) -> None:
        self._readers: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def adopt(self, capture: Capture) -> None:
        """Take over a capture whose pipe somebody still holds; does nothing at the pipe's end."""
        if capture.open:
            capture.stop_listening()
            capture.open = False
            self._readers.append(capture.reader)
            self._schedule(self._drain)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for reader in self._readers:
            os.close(reader)
        self._readers.clear()

    def _schedule(self, action: Callable[[], None]) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_STRAY_PAUSE_S, action)

    def _drain(self) -> None:
        self._timer = None
        self._readers = [reader for reader in self._readers if _still_held(reader)]
        if self._readers:
            self._schedule(self._drain)


def _still_held(reader: int) -> bool:
    for _ in range(_STRAY_READS):
        try:
            if not os.read(reader, _CHUNK):
                os.close(reader)
                return False
        except BlockingIOError:
            break
    return True

"""Messages between the API process and one worker process, over a Unix socket pair.

A message is a JSON header and an optional binary payload, each length-prefixed: 4 + 8 bytes big-endian, header,
payload. Nothing is ever unpickled. The worker inherits its end by file descriptor and reads it without a thread of
its own (`WorkerChannel.receive` with a timeout), so that a decode loop can look for new work between two steps. The
end of the stream means that the other process is gone; both sides treat it as the last message.
"""

import asyncio
import contextlib
import json
import select
import socket
import struct
from dataclasses import dataclass
from typing import Any

_LENGTHS = struct.Struct("!IQ")
_MAX_HEADER_BYTES = 1 << 28
_MAX_PAYLOAD_BYTES = 1 << 34
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """`header` is any JSON object; `payload` is empty where a message carries no bytes."""

    header: dict[str, Any]
    payload: bytes = b""


class ChannelClosed(Exception):
    """The process at the other end is gone (control flow between the two halves, never shown to a user)."""


def pack(message: Message) -> bytes:
    """The bytes of a message's lengths and header; the payload follows them on the stream."""
    header = json.dumps(message.header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(header), len(message.payload)) + header


def _lengths(prefix: bytes) -> tuple[int, int]:
    header_bytes, payload_bytes = _LENGTHS.unpack(prefix)
    if header_bytes > _MAX_HEADER_BYTES or payload_bytes > _MAX_PAYLOAD_BYTES:
        raise ChannelClosed(f"lengths out of range: header {header_bytes}, payload {payload_bytes}")
    return header_bytes, payload_bytes


class WorkerChannel:
    """The worker's end: blocking, single-threaded."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._buffer = bytearray()

    @classmethod
    def inherited(cls, fd: int) -> "WorkerChannel":
        """The channel whose socket this process was started with."""
        return cls(socket.socket(fileno=fd))

    def receive(self, timeout_s: float | None) -> Message | None:
        """The next message, or None when none came within `timeout_s` (0: look only; None: wait for ever).

        Raises ChannelClosed at the end of the stream.
        """
        if len(self._buffer) < _LENGTHS.size:
            ready, _, _ = select.select([self._sock], [], [], timeout_s)
            if not ready:
                return None
        self._fill(_LENGTHS.size)
        header_bytes, payload_bytes = _lengths(bytes(self._buffer[: _LENGTHS.size]))
        self._fill(_LENGTHS.size + header_bytes + payload_bytes)
        start = _LENGTHS.size + header_bytes
        header = json.loads(self._buffer[_LENGTHS.size : start])
        payload = bytes(memoryview(self._buffer)[start : start + payload_bytes])
        del self._buffer[: start + payload_bytes]
        return Message(header, payload)

    def send(self, message: Message) -> None:
        """Writes a whole message; raises ChannelClosed when nobody reads any more."""
        try:
            self._sock.sendall(pack(message))
            if message.payload:
                self._sock.sendall(message.payload)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed("the API process is gone") from error

    def _fill(self, wanted: int) -> None:
        while len(self._buffer) < wanted:
            try:
                data = self._sock.recv(_READ_BYTES)
            except ConnectionResetError as error:
                raise ChannelClosed("the API process is gone") from error
            if not data:
                raise ChannelClosed("the API process is gone")
            self._buffer += data


class ServiceChannel:
    """The API process's end: asyncio streams; any number of senders, one receiver."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> "ServiceChannel":
        """Takes over one end of a connected pair."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    async def send(self, message: Message) -> None:
        """Queues a whole message (never interleaved with another) and waits for room; raises ChannelClosed."""
        try:
            self._writer.write(pack(message))
            if message.payload:
                self._writer.write(message.payload)
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise ChannelClosed("the worker is gone") from error

    async def receive(self) -> Message:
        """The next message; raises ChannelClosed at the end of the stream."""
        try:
            header_bytes, payload_bytes = _lengths(await self._reader.readexactly(_LENGTHS.size))
            header = json.loads(await self._reader.readexactly(header_bytes))
            payload = await self._reader.readexactly(payload_bytes) if payload_bytes else b""
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ChannelClosed("the worker is gone") from error
        return Message(header, payload)

    async def close(self) -> None:
        """Closes this end; the worker then ends."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

"""Messages between the API process and one worker process, over a Unix socket.

A message is a JSON header and an optional binary payload, each length-prefixed: 4 + 8 bytes big-endian, header,
payload. Nothing is ever unpickled. The end of the stream means that the other process is gone; both sides treat it as
the last message. What messages mean is said in `worker_link.py` (the worker's end) and `worker_group.py` (the
service's).
"""

import asyncio
import contextlib
import json
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.wire.blob import Bytes, new_buffer

_LENGTHS = struct.Struct("!IQ")
_MAX_HEADER_BYTES = 1 << 28
_MAX_PAYLOAD_BYTES = 1 << 34
_STREAM_BYTES = 4 << 20
_LARGE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Message:
    """`header` is any JSON object; `payload` is empty where a message carries no bytes."""

    header: dict[str, Any]
    payload: Bytes = b""


class ChannelClosed(Exception):
    """The process at the other end is gone (control flow between the two halves, never shown to a user)."""


def _pack(message: Message) -> bytes:
    """The bytes of a message's lengths and header; the payload follows them on the stream."""
    header = json.dumps(message.header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(header), len(message.payload)) + header


def _lengths(prefix: Bytes) -> tuple[int, int]:
    header_bytes, payload_bytes = _LENGTHS.unpack(prefix)
    if header_bytes > _MAX_HEADER_BYTES or payload_bytes > _MAX_PAYLOAD_BYTES:
        raise ChannelClosed(f"lengths out of range: header {header_bytes}, payload {payload_bytes}")
    return header_bytes, payload_bytes


class WorkerChannel:
    """The worker's end of one connection: blocking; one thread may read while another writes."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock

    def receive(self, timeout_s: float | None) -> Message | None:
        """The next message, or None when none began within `timeout_s` (0: look only; None: wait for ever).

        Raises ChannelClosed at the end of the stream.
        """
        ready, _, _ = select.select([self._sock], [], [], timeout_s)
        if not ready:
            return None
        header_bytes, payload_bytes = _lengths(self._read(_LENGTHS.size))
        header = json.loads(bytes(self._read(header_bytes)))
        return Message(header, self._read(payload_bytes) if payload_bytes else b"")

    def send(self, message: Message) -> None:
        """Writes a whole message; raises ChannelClosed when nobody reads any more."""
        try:
            self._sock.sendall(_pack(message))
            if message.payload:
                self._sock.sendall(message.payload)
        except OSError as error:
            raise ChannelClosed("the API process is gone") from error

    def close(self) -> None:
        """Ends the connection, also for a thread that is reading or writing."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _read(self, count: int) -> memoryview:
        data = new_buffer(count)
        view = data
        while view:
            try:
                received = self._sock.recv_into(view)
            except OSError as error:
                raise ChannelClosed("the API process is gone") from error
            if not received:
                raise ChannelClosed("the API process is gone")
            view = view[received:]
        return data


class ServiceChannel:
    """The API process's end: asyncio streams; any number of senders, one receiver."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> "ServiceChannel":
        """Connects to a worker's socket. Raises OSError when nobody listens there."""
        return cls(*await asyncio.open_unix_connection(path, limit=_STREAM_BYTES))

    @property
    def socket(self) -> Any:
        """The connected socket, for questions to the kernel about it."""
        return self._writer.get_extra_info("socket")

    async def send(self, message: Message) -> None:
        """Queues a whole message (never interleaved with another) and waits for room; raises ChannelClosed."""
        try:
            self.write(message)
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise ChannelClosed("the worker is gone") from error

    def write(self, message: Message) -> None:
        """Queues a whole message without waiting for room; for small ones."""
        self._writer.write(_pack(message))
        if message.payload:
            self._writer.write(message.payload)

    async def receive(self) -> Message:
        """The next message; raises ChannelClosed at the end of the stream."""
        try:
            header_bytes, payload_bytes = _lengths(await self._reader.readexactly(_LENGTHS.size))
            header = json.loads(await self._reader.readexactly(header_bytes))
            payload = await self._read(payload_bytes)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ChannelClosed("the worker is gone") from error
        return Message(header, payload)

    async def _read(self, count: int) -> Bytes:
        if count <= _LARGE_BYTES:
            return await self._reader.readexactly(count)
        data, filled = new_buffer(count), 0
        while filled < count:
            part = await self._reader.read(min(count - filled, _STREAM_BYTES))
            if not part:
                raise asyncio.IncompleteReadError(b"", count - filled)
            data[filled : filled + len(part)] = part
            filled += len(part)
        return data

    async def close(self) -> None:
        """Closes this end."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

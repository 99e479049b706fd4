"""Messages over a socket: two lengths (4 bytes each, big-endian), the message as JSON, its payload.

The end of the stream is the last message: the other process is gone.
"""

import asyncio
import contextlib
import socket
import struct

from pydantic import ValidationError

from drydock.rollout.shards.messages import MESSAGE, Message

_LENGTHS = struct.Struct("!II")
_MAX_BYTES = 1 << 30
_BUFFER_BYTES = 4 << 20


class ChannelClosed(Exception):
    """The other process is gone, or says what no message is (control flow, never shown to a user)."""


class Channel:
    """One end; any number of writers, one reader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connected: socket.socket) -> "Channel":
        """The end of a connected socket, which it owns from now on."""
        return cls(*await asyncio.open_unix_connection(sock=connected, limit=_BUFFER_BYTES))

    def write(self, message: Message, payload: bytes = b"") -> None:
        """Queue a message. Nothing happens when the other process is gone: `receive` says so.

        Raises ValueError when a part is larger than 1 GiB.
        """
        header = MESSAGE.dump_json(message)
        if len(payload) > _MAX_BYTES or len(header) > _MAX_BYTES:
            raise ValueError(f"a message of {len(header) + len(payload)} bytes is too large for a shard's channel")
        if not self._writer.is_closing():
            self._writer.write(_LENGTHS.pack(len(header), len(payload)) + header + payload)

    async def receive(self) -> tuple[Message, bytes]:
        """The next message and its payload; raises ChannelClosed."""
        try:
            lengths = _LENGTHS.unpack(await self._reader.readexactly(_LENGTHS.size))
            if max(lengths) > _MAX_BYTES:
                raise ChannelClosed(f"lengths out of range: {lengths}")
            header = await self._reader.readexactly(lengths[0])
            payload = await self._reader.readexactly(lengths[1])
            return MESSAGE.validate_json(header), payload
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ChannelClosed("the other process is gone") from error
        except ValidationError as error:
            raise ChannelClosed(f"not a message: {error.error_count()} errors") from None

    async def flush(self) -> None:
        """Wait until what was written is with the operating system, or the other process is gone."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def close(self) -> None:
        """End the connection."""
        self._writer.close()

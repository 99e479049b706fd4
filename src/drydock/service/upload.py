"""The frame in a POST of octets: whole, or joined from chunks.

Hashing and copying of large bodies happen off the event loop.
"""

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from drydock.errors import WireError
from drydock.service import body
from drydock.service.chunk_groups import ChunkGroups
from drydock.service.problems import Refusal
from drydock.wire.blob import Bytes, new_buffer
from drydock.wire.chunks import Chunk, ChunkDescriptor, parse_chunk, reassemble


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete frame; `descriptor` is that of its last chunk, None for a bare one."""

    frame: Bytes
    descriptor: ChunkDescriptor | None


async def octets(request: Request) -> Bytes:
    """The body of a call, which the gate has limited."""
    declared = request.headers.get("content-length", "")
    if not declared.isdigit() or int(declared) <= body.SMALL_BYTES:
        return await request.body()
    data, filled = new_buffer(int(declared)), 0
    async for piece in request.stream():
        data[filled : filled + len(piece)] = piece
        filled += len(piece)
    return data[:filled]


async def parse(data: Bytes) -> Chunk:
    """Reads one body. Raises Refusal 400."""
    try:
        return await body.aside(parse_chunk, data)
    except WireError as error:
        raise Refusal(400, str(error)) from error


async def join(chunk: Chunk, groups: ChunkGroups) -> Upload | None:
    """The frame when this was its last chunk, None when more must come. Raises Refusal (400, 409, 429)."""
    if chunk.descriptor is None:
        return Upload(chunk.payload, None)
    chunks = groups.add(chunk)
    if chunks is None:
        return None
    try:
        frame = await asyncio.to_thread(reassemble, chunks) if len(chunks) > 1 else reassemble(chunks)
    except WireError as error:
        raise Refusal(400, str(error)) from error
    return Upload(frame, chunk.descriptor)


async def receive(data: bytes, groups: ChunkGroups) -> bytes | None:
    """The frame as `parse` and `join` give it, of a body that may also be JSON, which is never chunked."""
    if data[:1] == b"{":
        return data
    upload = await join(await parse(data), groups)
    return None if upload is None else bytes(upload.frame)

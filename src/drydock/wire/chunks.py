"""Cutting a frame into chunks that fit the body limit, and joining them with proof that nothing changed.

A chunk is itself a frame of {"payload": U8[n]}, a range of the original frame's bytes, with a descriptor in its "op"
metadata: index and count, size and sha256 of the whole, and for requests the id that makes a forward-backward
idempotent. A frame that fits is sent bare, except where an envelope is forced (forward-backward always, because only
the envelope carries the id). Frames are not reproducible byte for byte, so a retry resends the same bytes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from drydock.errors import WireError
from drydock.wire.blob import Bytes, joined
from drydock.wire.frame import decode_frame, encode_parts

MAX_BODY_BYTES: Final = 62_914_560
"""Largest body the API takes in one POST: 60 MiB."""
MAX_CHUNKS: Final = 65_536
"""Most chunks of one frame; a description of more is refused before anything is kept of it."""
MAX_GROUP_ID_LENGTH: Final = 128
PIECE_BYTES: Final = 1 << 20
"""Length of the pieces that a large body is handed over in."""
_OVERHEAD_BYTES: Final = 8192
_KEYS: Final[dict[str, Literal["request", "result"]]] = {"request_chunk": "request", "result_chunk": "result"}


@dataclass(frozen=True, slots=True)
class ChunkDescriptor:
    """Which part of which frame a chunk holds.

    frame_sha256, frame_size_bytes: of the whole original frame (hex; bytes).
    chunk_group_id, operation ("fwd-bwd" or "generate"): of requests only.
    """

    kind: Literal["request", "result"]
    chunk_idx: int
    total_chunks: int
    frame_sha256: str
    frame_size_bytes: int
    chunk_group_id: str | None = None
    operation: str | None = None

    def to_metadata(self) -> dict[str, Any]:
        """The "op" object of the chunk frame."""
        fields: dict[str, Any] = {
            "chunk_idx": self.chunk_idx,
            "total_chunks": self.total_chunks,
            "frame_sha256": self.frame_sha256,
            "frame_size_bytes": self.frame_size_bytes,
        }
        if self.kind == "request":
            fields |= {"chunk_group_id": self.chunk_group_id, "operation": self.operation}
        return {f"{self.kind}_chunk": fields}

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> "ChunkDescriptor | None":
        """The descriptor in a frame's "op" object, None when it has none. Raises WireError when it is malformed."""
        found = [key for key in _KEYS if key in metadata]
        if not found:
            return None
        match metadata[found[0]]:
            case {
                "chunk_idx": int(index),
                "total_chunks": int(total),
                "frame_sha256": str(digest),
                "frame_size_bytes": int(size),
                **rest,
            } if len(found) == 1 and 0 <= index < total and size >= 0:
                kind = _KEYS[found[0]]
                if total > MAX_CHUNKS:
                    raise WireError(f"total_chunks {total} is over the limit of {MAX_CHUNKS}")
                group, operation = rest.get("chunk_group_id"), rest.get("operation")
                if kind == "request" and not (isinstance(group, str) and group and isinstance(operation, str)):
                    raise WireError("a request chunk lacks its chunk_group_id or operation")
                if isinstance(group, str) and (len(group) > MAX_GROUP_ID_LENGTH or not group.isprintable()):
                    raise WireError(f"a chunk_group_id has at most {MAX_GROUP_ID_LENGTH} printable characters")
                return cls(kind, index, total, digest.lower(), size, group, operation)
            case other:
                raise WireError(f"a chunk has a bad descriptor: {str(other)[:200]}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A received body: a range of a frame with its descriptor, or a bare frame whole with None."""

    payload: Bytes
    descriptor: ChunkDescriptor | None


class ChunkBody:
    """A body to POST that refers to the frame it is a part of, which must not change while it is sent."""

    def __init__(self, parts: Sequence[Bytes]) -> None:
        self._parts = [memoryview(part).cast("B") for part in parts]
        self._size = sum(map(len, self._parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def pieces(self) -> Iterator[memoryview]:
        """Its bytes in order, at most `PIECE_BYTES` at a time."""
        for part in self._parts:
            for begin in range(0, len(part), PIECE_BYTES):
                yield part[begin : begin + PIECE_BYTES]


def split_request(
    frame: Bytes,
    *,
    operation: str,
    group_id: str,
    max_bytes: int = MAX_BODY_BYTES,
    force: bool = True,
) -> list[bytes]:
    """Bodies to POST in order, each at most `max_bytes` long.

    force: wrap even a frame that fits; without it such a frame is returned bare.
    operation: "fwd-bwd" or "generate". group_id: a uuid4 made for this call.
    """
    bodies = request_bodies(frame, operation=operation, group_id=group_id, max_bytes=max_bytes, force=force)
    return [bytes(body) for body in bodies]


def request_bodies(
    frame: Bytes,
    *,
    operation: str,
    group_id: str,
    max_bytes: int = MAX_BODY_BYTES,
    force: bool = True,
) -> list[ChunkBody]:
    """As `split_request`, without copying the frame."""
    if not force and len(frame) <= max_bytes:
        return [ChunkBody([frame])]
    return _split(frame, _describe(frame, "request", group_id, operation), max_bytes)


def split_result(frame: Bytes, max_bytes: int = MAX_BODY_BYTES) -> list[bytes]:
    """Chunk frames of a result, each at most `max_bytes` long; always enveloped, as result events must be."""
    return [bytes(body) for body in result_bodies(frame, max_bytes)]


def result_bodies(frame: Bytes, max_bytes: int = MAX_BODY_BYTES) -> list[ChunkBody]:
    """As `split_result`, without copying the frame."""
    return _split(frame, _describe(frame, "result"), max_bytes)


def parse_chunk(data: Bytes) -> Chunk:
    """Read one body; the chunk refers to `data`. Raises WireError unless it is a frame, bare or a well-formed chunk."""
    frame = decode_frame(data, copy=False)
    descriptor = ChunkDescriptor.from_metadata(frame.metadata)
    if descriptor is None:
        return Chunk(data, None)
    match frame.value:
        case {"payload": np.ndarray(dtype=np.uint8, ndim=1) as payload}:
            return Chunk(memoryview(payload), descriptor)
        case _:
            raise WireError("a chunk holds no byte payload")


def reassemble(chunks: Iterable[Chunk]) -> Bytes:
    """The original frame's bytes from its chunks in any order; of a single one they are returned as they are.

    Raises WireError when a chunk is missing, doubled, of another frame, or changed on the way.
    """
    parts = list(chunks)
    if not parts:
        raise WireError("no chunks to join")
    first = parts[0].descriptor
    if first is None:
        if len(parts) > 1:
            raise WireError(f"a bare frame came with {len(parts) - 1} more bodies")
        return parts[0].payload
    payloads: dict[int, Bytes] = {}
    for part in parts:
        if part.descriptor is None or replace(part.descriptor, chunk_idx=first.chunk_idx) != first:
            raise WireError("the chunks describe different frames")
        if part.descriptor.chunk_idx in payloads:
            raise WireError(f"chunk {part.descriptor.chunk_idx} came twice")
        payloads[part.descriptor.chunk_idx] = part.payload
    if len(payloads) != first.total_chunks:
        raise WireError(f"{len(payloads)} of {first.total_chunks} chunks are there")
    frame = payloads[0] if len(payloads) == 1 else joined(payloads[index] for index in range(first.total_chunks))
    if len(frame) != first.frame_size_bytes:
        raise WireError(f"the joined frame has {len(frame)} bytes, its chunks announce {first.frame_size_bytes}")
    if hashlib.sha256(frame).hexdigest() != first.frame_sha256:
        raise WireError("the joined frame's sha256 is not the announced one: the data changed on the way")
    return frame


def _describe(
    frame: Bytes, kind: Literal["request", "result"], group_id: str | None = None, operation: str | None = None
) -> ChunkDescriptor:
    return ChunkDescriptor(kind, 0, 1, hashlib.sha256(frame).hexdigest(), len(frame), group_id, operation)


def _split(frame: Bytes, descriptor: ChunkDescriptor, max_bytes: int) -> list[ChunkBody]:
    data = np.frombuffer(frame, np.uint8)
    size = max_bytes - _OVERHEAD_BYTES if max_bytes > _OVERHEAD_BYTES else max_bytes // 2
    while size > 0:
        total = max(1, -(-len(frame) // size))
        chunks = [
            ChunkBody(
                encode_parts(
                    {"payload": data[index * size : (index + 1) * size]},
                    replace(descriptor, chunk_idx=index, total_chunks=total).to_metadata(),
                )
            )
            for index in range(total)
        ]
        if max(map(len, chunks)) <= max_bytes:
            return chunks
        size //= 2
    raise WireError(f"max_bytes {max_bytes} is too small for even one byte in a chunk")

"""Uploads in chunks: parts of one frame, kept until all are there.

The group id that the client makes is the upload's identity, the sha256 of the whole frame binds it to one content.
A group nobody knows must start at chunk 0 (`chunk_group_restart_required`), a known one must keep its description and
bytes (`chunk_group_conflict`), and the last chunk needs all others (`chunk_group_missing_chunks`): the three 409
answers that the client acts on. What an upload became is remembered by the request table under the group's id.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from drydock.service.problems import Refusal
from drydock.wire.blob import Bytes
from drydock.wire.chunks import Chunk, ChunkDescriptor

EXPIRY_S = 600.0
MAX_GROUPS = 256
"""Most unfinished uploads of one job; the one that was touched longest ago gives way and is begun again."""


@dataclass(slots=True)
class _Group:
    descriptor: ChunkDescriptor
    chunks: dict[int, Chunk] = field(default_factory=dict)
    touched: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return sum(len(chunk.payload) for chunk in self.chunks.values())


class ChunkGroups:
    """The unfinished uploads of one job, at most `max_bytes` together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._groups: dict[str, _Group] = {}

    def add(self, chunk: Chunk) -> list[Chunk] | None:
        """Takes a chunk in; all chunks once the last one came, None before. Raises Refusal (409, 429)."""
        descriptor = chunk.descriptor
        assert descriptor is not None
        group_id = descriptor.chunk_group_id
        assert group_id is not None
        self._expire()
        group = self._groups.get(group_id)
        if group is None:
            if descriptor.chunk_idx != 0:
                raise _conflict(
                    "chunk_group_restart_required",
                    f"upload {group_id} is not known here: send it again from chunk 0",
                    descriptor,
                    expected_start_chunk=0,
                )
            while len(self._groups) >= MAX_GROUPS:
                del self._groups[min(self._groups, key=lambda key: self._groups[key].touched)]
            group = self._groups[group_id] = _Group(descriptor)
        if replace(descriptor, chunk_idx=group.descriptor.chunk_idx) != group.descriptor:
            raise conflict(descriptor)
        known = group.chunks.get(descriptor.chunk_idx)
        if known is not None and not _same(known.payload, chunk.payload):
            raise conflict(descriptor)
        if known is None and sum(g.size for g in self._groups.values()) + len(chunk.payload) > self._max_bytes:
            raise Refusal(429, f"unfinished uploads of this job already hold {self._max_bytes} bytes; try again later")
        group.chunks[descriptor.chunk_idx] = chunk
        group.touched = time.monotonic()
        if descriptor.chunk_idx < descriptor.total_chunks - 1:
            return None
        missing = [index for index in range(descriptor.total_chunks) if index not in group.chunks]
        if missing:
            raise _conflict(
                "chunk_group_missing_chunks",
                f"upload {group_id}: request chunk group is missing chunks {missing[:20]}",
                descriptor,
                missing_chunks=missing,
            )
        del self._groups[group_id]
        return [group.chunks[index] for index in range(descriptor.total_chunks)]

    def _expire(self) -> None:
        limit = time.monotonic() - EXPIRY_S
        for group_id in [key for key, group in self._groups.items() if group.touched < limit]:
            del self._groups[group_id]


def _same(one: Bytes, other: Bytes) -> bool:
    return np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))


def conflict(descriptor: ChunkDescriptor) -> Refusal:
    """409: the group id was used for another frame."""
    message = f"upload {descriptor.chunk_group_id} was begun with another frame, count or bytes: make a new group id"
    return _conflict("chunk_group_conflict", message, descriptor)


def _conflict(code: str, message: str, descriptor: ChunkDescriptor, **more: Any) -> Refusal:
    detail = {
        "code": code,
        "message": message,
        "chunk_group_id": descriptor.chunk_group_id,
        "received_chunk": descriptor.chunk_idx,
        **more,
    }
    return Refusal(409, message, detail=detail)

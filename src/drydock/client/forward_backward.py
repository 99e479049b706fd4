"""Sending a forward-backward batch: arrays from plain lists, one frame, request chunks, one restart.

The chunk group id is the identity of the call: a server that knows it returns the first execution, so every retry
resends the same bytes. A server that lost the group (a restart, another replica) asks for it from chunk 0, which is
granted once.
"""

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from drydock.client.call import Call
from drydock.client.polling import prefer_wait
from drydock.client.transport import Refused, Transport, job_path
from drydock.errors import ServiceError, UserError
from drydock.wire.chunks import MAX_BODY_BYTES, ChunkBody, request_bodies
from drydock.wire.frame import encode_buffer

RESPONSE_OPTIONS: Final = {"response_options": {"format": "dssst1", "delivery": "chunked"}}
_RESTART_SIGNS: Final = (
    "chunk_group_restart_required",
    "chunk_group_missing_chunks",
    "request chunk group is missing chunks",
)
_KEYS: Final = uuid.UUID("6f1f9f0e-5c07-5b42-9f5c-3c1c9f6f0b77")
_DTYPES: Final = {"i": np.int64, "u": np.int64, "f": np.float32, "b": np.bool_}


def as_arrays(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The batch with the lists of `kwargs` and `context` as arrays: int64, float32 or bool; arrays stay as they are.

    Raises UserError, naming the field, for a ragged list.
    """
    whole: dict[str, Any] = {"args": (), **batch}
    for block in ("kwargs", "context"):
        if isinstance(whole.get(block), Mapping):
            whole[block] = {name: _as_array(f"{block}.{name}", value) for name, value in whole[block].items()}
    return whole


async def post_batch(
    transport: Transport,
    call: Call,
    job_id: str,
    batch: Mapping[str, Any],
    *,
    hold_s: float,
    group_id: str,
    max_bytes: int = MAX_BODY_BYTES,
) -> dict[str, Any]:
    """POST the batch as request chunks; the answer to the last one, which names the request."""
    chunks = await asyncio.to_thread(_encode, batch, group_id, max_bytes)
    for may_restart in (True, False):
        try:
            return await _post_chunks(transport, call, job_id, chunks, hold_s)
        except Refused as error:
            if not may_restart or error.status != 409 or not any(sign in error.body for sign in _RESTART_SIGNS):
                raise
    raise AssertionError("unreachable: the second pass returns or raises")


async def _post_chunks(
    transport: Transport, call: Call, job_id: str, chunks: list[ChunkBody], hold_s: float
) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for index, chunk in enumerate(chunks):
        last = index == len(chunks) - 1
        headers = {"Content-Type": "application/octet-stream"} | (prefer_wait(call, hold_s) if last else {})
        answer = await transport.send(
            call, "POST", job_path(job_id, "/forward-backward"), content=chunk, headers=headers
        )
        if not last and "request_id" in answer:
            text = json.dumps(answer)[:200]
            raise ServiceError(f"{call.label}: chunk {index} of {len(chunks)} was answered as if it were whole: {text}")
    return answer


def chunk_group_id(idempotency_key: str | None) -> str:
    """The chunk group that a key stands for, always the same UUID; without a key a new one."""
    if idempotency_key is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(idempotency_key))
    except ValueError:
        return str(uuid.uuid5(_KEYS, idempotency_key))


def _encode(batch: Mapping[str, Any], group_id: str, max_bytes: int) -> list[ChunkBody]:
    frame = encode_buffer(as_arrays(batch), RESPONSE_OPTIONS)
    return request_bodies(frame, operation="fwd-bwd", group_id=group_id, max_bytes=max_bytes)


def _as_array(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UserError(f"{name} is ragged: pad its rows to one length") from error
    return array.astype(_DTYPES[array.dtype.kind]) if array.dtype.kind in _DTYPES else value

"""The forward operation: log-probs of given rows without gradients.

The operation's body is one JSON object that cannot be sent in chunks, so a batch that is too large for it is cut by
rows, which do not depend on each other.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.client.forward_backward import RESPONSE_OPTIONS, as_arrays
from drydock.errors import ServiceError, UserError
from drydock.wire.frame import encode_frame


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What a forward found, predict-next (x[:, i] is about ids[:, i + 1]), 0 where there is no next token.

    logprobs: [batch, seq] of the rows' own tokens. entropy: [batch, seq] of the next token's distribution, in nats;
    None where it was not asked for. Both at the temperature that the call names.
    """

    logprobs: NDArray[np.float32]
    entropy: NDArray[np.float32] | None = None


def forward_bodies(
    batch: Mapping[str, Any], max_bytes: int, *, target: Mapping[str, str], post: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The operation's bodies, each at most `max_bytes` as JSON, in row order. Raises UserError for an oversized row.

    target: `sub_job_id` or `sub_job_type` of what computes it.
    """
    whole = as_arrays(batch)
    rows = len(whole.get("kwargs", {}).get("input_ids", ()))
    if rows == 0:
        raise UserError("kwargs.input_ids: a forward needs at least one row")
    if post:
        whole["processing"] = {"post": list(post)}
    yield from _bodies(whole, rows, max_bytes, {"operation_type": "forward", **target})


def read_scores(result: Mapping[str, Any], *, entropy: bool) -> TokenScores:
    """The scores, wherever the server put them. Raises ServiceError when something that was asked for is missing."""
    return TokenScores(_found(result, "logprobs"), _found(result, "entropy") if entropy else None)


def joined(parts: Sequence[TokenScores]) -> TokenScores:
    """The scores of rows that were sent in several bodies."""
    entropies = [part.entropy for part in parts if part.entropy is not None]
    return TokenScores(
        np.concatenate([part.logprobs for part in parts]), np.concatenate(entropies) if entropies else None
    )


def _found(result: Mapping[str, Any], name: str) -> NDArray[np.float32]:
    for place in (result, result.get("post_process_outputs") or {}, result.get("batch") or {}):
        if place.get(name) is not None:
            return np.asarray(place[name], np.float32)
    raise ServiceError(f"the forward result has no {name}")


def _bodies(batch: dict[str, Any], rows: int, max_bytes: int, operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    frame = encode_frame(batch, RESPONSE_OPTIONS)
    payload = {"payload_b64": base64.b64encode(frame).decode("ascii"), "content_type": "application/octet-stream"}
    body = {**operation, "payload": payload}
    if len(json.dumps(body)) <= max_bytes:
        yield body
        return
    if rows == 1:
        raise UserError(f"one row of the batch takes {len(frame)} bytes, more than a forward can send ({max_bytes})")
    half = rows // 2
    yield from _bodies(_rows(batch, 0, half, rows), half, max_bytes, operation)
    yield from _bodies(_rows(batch, half, rows, rows), rows - half, max_bytes, operation)


def _rows(batch: dict[str, Any], start: int, end: int, rows: int) -> dict[str, Any]:
    """The batch with rows [start, end) of every array that has one row a sample."""
    part = dict(batch)
    for block in ("kwargs", "context"):
        if isinstance(batch.get(block), Mapping):
            part[block] = {
                name: value[start:end] if isinstance(value, np.ndarray) and value.shape[:1] == (rows,) else value
                for name, value in batch[block].items()
            }
    return part

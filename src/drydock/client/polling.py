"""From an accepted request to its result.

Every POST and every poll asks the server to hold the answer (`Prefer: wait=`). A server that does makes polling
superfluous; one that answers at once is polled at a growing interval. Results are plain JSON, a frame in an envelope,
or `result_chunk` events over cursor pages; a page may come twice, so chunks are kept by their content.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from drydock.client.call import Call
from drydock.client.transport import Transport, job_path
from drydock.errors import RequestFailed, ServiceError, WireError
from drydock.wire.results import RESULT_CHUNK, join_result, read_result, read_result_event
from drydock.wire.status import RequestStatus

FIRST_INTERVAL_S: Final = 0.5
INTERVAL_GROWTH: Final = 1.25
LAST_INTERVAL_S: Final = 6.0


def prefer_wait(call: Call, hold_s: float) -> dict[str, str]:
    """Header that asks the server to hold its answer for at most `hold_s`, less when the deadline is nearer."""
    return {"Prefer": f"wait={max(1, int(min(hold_s, call.seconds_left)))}"}


async def result_of(
    transport: Transport, call: Call, job_id: str, accepted: Mapping[str, Any], hold_s: float
) -> dict[str, Any]:
    """Wait for the request that `accepted` (the POST's answer, held or not) names, and return its result.

    Raises RequestFailed with the server's error when it ended as failed or cancelled, ServiceError when the answer
    names no request or the result cannot be read.
    """
    request_id = accepted.get("request_id")
    if not isinstance(request_id, str) or not request_id:
        raise ServiceError(f"{call.label}: the server accepted it without a request_id")
    path = job_path(job_id, f"/requests/{request_id}")
    chunks: dict[str, bytes] = {}
    page, cursor, held, interval_s = accepted, "", True, FIRST_INTERVAL_S
    while True:
        fresh = _collect(call, page, chunks) if "status" in page else False
        following = page.get("next_cursor")
        if isinstance(following, str) and following and following != cursor:
            cursor, held = following, True
        else:
            cursor = ""
            status = RequestStatus.parse(page.get("status", RequestStatus.PENDING))
            if status.terminal:
                return _finish(call, request_id, status, page, chunks)
            if not held and not fresh:
                await asyncio.sleep(interval_s)
                interval_s = min(interval_s * INTERVAL_GROWTH, LAST_INTERVAL_S)
        asked_at = asyncio.get_running_loop().time()
        page = await transport.send(
            call, "GET", path, params={"cursor": cursor} if cursor else None, headers=prefer_wait(call, hold_s)
        )
        held = asyncio.get_running_loop().time() - asked_at > FIRST_INTERVAL_S


def _collect(call: Call, page: Mapping[str, Any], chunks: dict[str, bytes]) -> bool:
    before = len(chunks)
    for event in page.get("events") or ():
        if isinstance(event, Mapping) and event.get("type") == RESULT_CHUNK:
            try:
                chunk = read_result_event(event)
            except WireError as error:
                raise ServiceError(f"{call.label}: {error}") from error
            chunks[event.get("payload_sha256") or hashlib.sha256(chunk).hexdigest()] = chunk
    return len(chunks) > before


def _finish(
    call: Call, request_id: str, status: RequestStatus, page: Mapping[str, Any], chunks: dict[str, bytes]
) -> dict[str, Any]:
    if status is not RequestStatus.COMPLETED:
        error = page.get("error") or "the server gave no reason"
        raise RequestFailed(
            f"{call.label}: request {request_id} ended as {status}: {error}", text_or_none(page.get("error_type"))
        )
    try:
        result = join_result(chunks.values()) if chunks else read_result(page.get("result"))
    except WireError as error:
        raise ServiceError(f"{call.label}: the result of request {request_id} cannot be read: {error}") from error
    if result is not None and not isinstance(result, dict):
        raise ServiceError(f"{call.label}: the result of request {request_id} is a {type(result).__name__}, no object")
    return result or {}


def text_or_none(value: Any) -> str | None:
    """The value if it is a text."""
    return value if isinstance(value, str) else None

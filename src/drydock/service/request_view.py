"""A request as its poll shows it: status, times, and the result in the form that was asked for.

A result without tensors is plain JSON. One with tensors is nested lists for a caller that did not ask for DSSST1, one
frame in an envelope while that is small, and otherwise a run of `result_chunk` events over pages. A page can be asked
for again with the same cursor; the last one has none. A streaming request's events come in pages too; a poll of one
without a cursor goes on where the last such poll stopped.
"""

import asyncio
import re
from typing import Any

import numpy as np

from drydock.service.problems import Refusal
from drydock.service.request_record import RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.timestamps import iso
from drydock.wire.chunks import result_bodies
from drydock.wire.frame import decode_frame
from drydock.wire.results import result_envelope, result_event
from drydock.wire.status import RequestStatus

ENVELOPE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
DEFAULT_EVENTS = 16
MAX_EVENTS = 512
STREAM_KIND = "generate-stream"
_CURSOR = re.compile(r"[0-9]{1,18}")


async def request_state(
    table: RequestTable, record: RequestRecord, cursor: str | None, max_events: int | None
) -> dict[str, Any]:
    """The body of a poll. Raises Refusal 422 for a cursor that this service did not make."""
    state: dict[str, Any] = {
        "request_id": record.request_id,
        "job_id": record.job_id,
        "status": record.status.value,
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "events": [],
    }
    if record.error is not None:
        state |= {"error": record.error, "error_type": record.error_type, "blame": record.blame}
    if record.kind == STREAM_KIND:
        return state | _stream_page(record, cursor, max_events)
    if record.status is not RequestStatus.COMPLETED:
        return state
    if record.outcome.result is not None:
        state["result"] = record.outcome.result
    else:
        state |= await asyncio.to_thread(_tensor_result, table, record, cursor, max_events)
    return state


def _stream_page(record: RequestRecord, cursor: str | None, max_events: int | None) -> dict[str, Any]:
    """Events of a streaming request; every page but the last one of a finished request names the next."""
    events = events_of(record)
    start = cursor_position(cursor) if cursor else record.delivered
    end = min(len(events), start + max(1, min(max_events or MAX_EVENTS, MAX_EVENTS)))
    page: dict[str, Any] = {"events": events[start:end]}
    if not cursor:
        record.delivered = end
    if end < len(events) or not record.status.terminal:
        page["next_cursor"] = str(max(start, end))
    elif record.outcome.result is not None:
        page["result"] = {name: value for name, value in record.outcome.result.items() if name != "events"}
    return page


def events_of(record: RequestRecord) -> list[dict[str, Any]]:
    """Everything that a streaming request has told so far, also one that was read from the store."""
    stored = (record.outcome.result or {}).get("events")
    return record.events or (stored if isinstance(stored, list) else [])


def _tensor_result(
    table: RequestTable, record: RequestRecord, cursor: str | None, max_events: int | None
) -> dict[str, Any]:
    frame = table.read_frame(record)
    if frame is None:
        return {"result": {}}
    if not record.wants_tensors:
        return {"result": as_lists(decode_frame(frame).value)}
    if len(frame) <= ENVELOPE_BYTES:
        return {"result": result_envelope(frame)}
    start = cursor_position(cursor)
    chunks = result_bodies(frame, CHUNK_BYTES)
    end = start + max(1, min(max_events or DEFAULT_EVENTS, MAX_EVENTS))
    page: dict[str, Any] = {"events": [result_event(bytes(chunk)) for chunk in chunks[start:end]]}
    if end < len(chunks):
        page["next_cursor"] = str(end)
    return page


def cursor_position(cursor: str | None) -> int:
    """The place that a cursor names, 0 without one. Raises Refusal 422 for one that this service did not make."""
    if not cursor:
        return 0
    if not _CURSOR.fullmatch(cursor):
        raise Refusal(422, f"cursor: {cursor[:80]!r} is not one that this service made")
    return int(cursor)


def as_lists(value: Any) -> Any:
    """The same tree with arrays as nested lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_lists(item) for item in value]
    return value

"""Server-sent events as an HTTP answer: `text/event-stream` with ids, and comments that keep idle connections open.

A client that was cut off comes back with `Last-Event-ID`; what an id means is the stream's to say.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
LONGEST_ID = 200


def wants_events(request: Request) -> bool:
    """Whether the caller asked for events rather than one JSON answer."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def last_event_id(request: Request) -> str:
    """The id that the caller heard last, "" for a new one."""
    return request.headers.get("last-event-id", "")[:LONGEST_ID]


def event(name: str, data: dict[str, Any], event_id: str = "") -> bytes:
    """One event; JSON has no line breaks of its own, so it is one data line."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    named = f"id: {event_id}\n" if event_id else ""
    return f"{named}event: {name}\ndata: {text}\n\n".encode()


def streamed(events: AsyncIterator[bytes]) -> Response:
    """The answer that sends `events` as they come; it ends when they do or the caller hangs up."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, 200, headers, media_type=MEDIA_TYPE)


async def next_change(changes: asyncio.Queue[Any], wait_s: float = KEEP_ALIVE_S) -> tuple[bool, Any]:
    """(True, the next change) or, when none came within `wait_s`, (False, None)."""
    try:
        async with asyncio.timeout(wait_s):
            return True, await changes.get()
    except TimeoutError:
        return False, None

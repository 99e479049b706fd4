"""Holding a poll that asks for the next page of a stream before there is one.

A client that follows `next_cursor` polls again at once; held for a moment, such polls cost next to nothing.
"""

import asyncio
import contextlib

from drydock.service.request_record import RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.request_view import STREAM_KIND, cursor_position, events_of

HOLD_S = 1.0


async def until_more(table: RequestTable, record: RequestRecord, cursor: str | None) -> None:
    """Returns when a stream has told more than `cursor`, is over, or HOLD_S have passed. Raises Refusal 422."""
    if record.kind != STREAM_KIND or not cursor:
        return
    position = cursor_position(cursor)
    with table.changes.following(record.job_id) as changes, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HOLD_S):
            while len(events_of(record)) <= position and not record.status.terminal:
                if await changes.get() is None:
                    return

"""Following a sub-job's log: by events where the server has them, else page by page.

The stream ends when the job is over and its log has been read to the end.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drydock.client.call import Call
from drydock.client.server_events import NoEvents, follow, next_within
from drydock.client.transport import Transport, job_path
from drydock.wire.rest import Job

POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some lines of a log.

    entries: {"ts", "level", "logger", "msg"}, or {"_raw"} for a line that is no record. next_cursor: what comes after
    them. eof: nothing does, for now.
    """

    entries: list[dict[str, Any]]
    next_cursor: str
    eof: bool

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> "LogPage":
        """Read the answer to tail-logs."""
        return cls(list(answer.get("entries") or ()), answer.get("next_cursor") or "", bool(answer.get("eof")))


async def stream_log(
    transport: Transport,
    call: Call,
    job_id: str,
    sub_job_id: str | None,
    cursor: str | None,
    page: Callable[[str | None], Awaitable[LogPage]],
    *,
    follow_events: bool,
) -> AsyncGenerator[dict[str, Any]]:
    """Entries as they are written; `page` reads the page at a cursor."""
    if follow_events:
        given = {"sub_job_id": sub_job_id, "cursor": cursor}
        params = {name: value for name, value in given.items() if value}
        events = follow(transport, call, job_path(job_id, "/logs"), params)
        async with contextlib.aclosing(events):
            try:
                while (event := await next_within(call, events)) is not None:
                    for entry in event.data.get("entries") or ():
                        yield entry
                return
            except NoEvents:
                pass
    while True:
        over = await _job_is_over(transport, call, job_id)
        found = await page(cursor)
        for entry in found.entries:
            yield entry
        if found.eof and over:
            return
        cursor = found.next_cursor or cursor
        if found.eof:
            async with call.limited():
                await asyncio.sleep(POLL_S)


async def _job_is_over(transport: Transport, call: Call, job_id: str) -> bool:
    async with call.limited():
        answer = await transport.send(call, "GET", job_path(job_id))
    return call.read(Job.model_validate, answer).status.terminal

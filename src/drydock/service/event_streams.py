"""The three streams of events: of one request, of a job, of a sub-job's log.

Request: "status" when it changes, then what it produces as it is produced ("result", "error", "done" of a streaming
request; "result_chunk" of a large result), then "end" with its whole state. An id is the number of produced events
before the next one, the same as a poll's cursor.

Job: "job" with its status, now and at each change; "request" at each end of one. An id is the time of the event and
the request it is about; coming back with it gives every end since then, some of them perhaps twice. "end" follows the
job's last status.

Log: "log" with the lines that were written; an id is the log's cursor. "end" when the job is over and all is read.

A stream without "end" was cut off, as when the service stops: come back with the last id.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from drydock.service import logs
from drydock.service.jobs import Jobs
from drydock.service.problems import Refusal
from drydock.service.request_record import RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.request_view import STREAM_KIND, events_of, request_state
from drydock.service.sse import KEEP_ALIVE, KEEP_ALIVE_S, event, next_change
from drydock.service.timestamps import iso
from drydock.wire.status import JobStatus

LOG_LOOK_S = 0.25
"""How often a followed log is looked at."""
LOG_PAGE_LINES = 1000
PAGE_EVENTS = 64
_JOB_EVENT_ID = re.compile(r"(\d{1,12}\.\d{1,9})(?::([A-Za-z0-9_]{1,80}))?")


async def request_events(table: RequestTable, record: RequestRecord, position: int) -> AsyncIterator[bytes]:
    """The request from now on; of what it produced, everything after the first `position` events."""
    streaming = record.kind == STREAM_KIND
    with table.changes.following(record.job_id) as changes:
        told = None
        while True:
            over = record.status.terminal
            if record.status is not told and not over:
                told = record.status
                yield event("status", {"request_id": record.request_id, "status": told.value})
            produced = events_of(record) if streaming else []
            for item in produced[position:]:
                position += 1
                yield event(item["type"], item, str(position))
            if over:
                break
            if record.status.terminal or position < len(record.events):
                continue
            came, change = await next_change(changes)
            if came and change is None:
                return
            if not came:
                yield KEEP_ALIVE
    async for part in _ending(table, record, position, streaming):
        yield part


async def _ending(table: RequestTable, record: RequestRecord, position: int, streaming: bool) -> AsyncIterator[bytes]:
    cursor = str(position) if position or streaming else None
    while True:
        try:
            state = await request_state(table, record, cursor, PAGE_EVENTS)
        except Refusal as refusal:
            news = {"request_id": record.request_id, "status": record.status.value, "error": refusal.message}
            yield event("end", news, str(position))
            return
        items, cursor = state.pop("events"), state.pop("next_cursor", None)
        for item in items if not streaming else ():
            position += 1
            yield event(item["type"], item, str(position))
        if streaming or not cursor:
            if streaming:
                state.pop("result", None)
            yield event("end", state, str(position))
            return


async def job_events(
    table: RequestTable, jobs: Jobs, job_id: str, last_id: str, only: str | None
) -> AsyncIterator[bytes]:
    """The job from now on, or since the event `last_id`; `only` "job" or "request" leaves out the other kind."""
    match = _JOB_EVENT_ID.fullmatch(last_id)
    place = last_id if match else f"{time.time():.6f}"
    with table.changes.following(job_id) as changes:
        status = None
        if match and only != "job":
            for record in await table.ended_since(job_id, float(match[1])):
                if record.request_id != match[2]:
                    place = _place(record)
                    yield event("request", _ended(record), place)
        change: Any = JobStatus.PENDING
        while True:
            if isinstance(change, RequestRecord):
                if change.status.terminal and only != "job":
                    place = _place(change)
                    yield event("request", _ended(change), place)
            else:
                view = await jobs.view(job_id)
                news = {key: view[key] for key in ("job_id", "status", "reason", "updated_at")}
                if view["status"] != status:
                    status = view["status"]
                    if only != "request":
                        yield event("job", news, place)
                if JobStatus(view["status"]).terminal:
                    yield event("end", news, place)
                    return
            came, change = False, None
            while not came:
                came, change = await next_change(changes)
                if not came:
                    yield KEEP_ALIVE
            if change is None:
                return


async def log_events(
    table: RequestTable, jobs: Jobs, job_id: str, log_dir: Path, cursor: str | None
) -> AsyncIterator[bytes]:
    """The log from `cursor` on."""
    quiet_s = 0.0
    with table.changes.following(job_id) as changes:
        while True:
            over = JobStatus((await jobs.view(job_id))["status"]).terminal
            page = await asyncio.to_thread(logs.tail, log_dir, cursor, LOG_PAGE_LINES)
            cursor = page["next_cursor"]
            if page["entries"]:
                quiet_s = 0.0
                yield event("log", {"entries": page["entries"]}, cursor or "")
                continue
            if over:
                yield event("end", {"job_id": job_id}, cursor or "")
                return
            await asyncio.sleep(LOG_LOOK_S)
            quiet_s += LOG_LOOK_S
            if quiet_s >= KEEP_ALIVE_S:
                quiet_s = 0.0
                yield KEEP_ALIVE
            while not changes.empty():
                if changes.get_nowait() is None:
                    return


def _place(record: RequestRecord) -> str:
    return f"{record.updated_at:.6f}:{record.request_id}"


def _ended(record: RequestRecord) -> dict[str, Any]:
    news: dict[str, Any] = {
        "request_id": record.request_id,
        "job_id": record.job_id,
        "kind": record.kind,
        "status": record.status.value,
        "updated_at": iso(record.updated_at),
    }
    if record.error is not None:
        news |= {"error": record.error, "error_type": record.error_type, "blame": record.blame}
    return news

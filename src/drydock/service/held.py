"""Answers that wait: `Prefer: wait=<seconds>` (RFC 7240) on a POST that starts a request and on its poll.

A held answer carries the whole request state, so the client need not poll. Without the header a POST is answered at
once with the request's id. A caller that hangs up stops the holding; what that means for the request is the route's
to say (`on_hang_up`).
"""

import asyncio
import contextlib
import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from drydock.service.problems import json_response
from drydock.service.request_record import RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.request_view import request_state

_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d+(?:\.\d+)?)", re.IGNORECASE)


def preferred_wait_s(request: Request, limit_s: float) -> float | None:
    """Seconds that the caller would wait, at most `limit_s`; None when it did not say."""
    match = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return min(float(match[1]), limit_s) if match else None


async def answer_started(
    request: Request,
    table: RequestTable,
    record: RequestRecord,
    limit_s: float,
    on_hang_up: Callable[[], None] | None = None,
) -> Response:
    """The answer to the POST that started (or repeated) `record`."""
    wait_s = preferred_wait_s(request, limit_s)
    if wait_s is None:
        return json_response({"request_id": record.request_id, "job_id": record.job_id})
    if not await hold(request, table, record, wait_s) and on_hang_up is not None:
        on_hang_up()
    return await answer_state(table, record, applied_s=wait_s)


async def answer_state(
    table: RequestTable,
    record: RequestRecord,
    *,
    cursor: str | None = None,
    max_events: int | None = None,
    applied_s: float | None = None,
) -> Response:
    """The request's state as one page."""
    headers = {"Preference-Applied": f"wait={applied_s:g}"} if applied_s is not None else None
    return json_response(await request_state(table, record, cursor, max_events), headers=headers)


async def hold(request: Request, table: RequestTable, record: RequestRecord, wait_s: float) -> bool:
    """Waits for the end of `record` or `wait_s`; False when the caller hung up before."""
    if record.status.terminal:
        return True
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hung_up = False

    async def watch_caller() -> None:
        nonlocal hung_up
        while (await request.receive())["type"] != "http.disconnect":
            continue
        hung_up = True
        if not waiter.done():
            waiter.set_result(None)

    watch = asyncio.create_task(watch_caller())
    try:
        await table.hold(record, wait_s, waiter)
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
    return not hung_up

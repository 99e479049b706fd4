"""Polling a data-plane request, held open on demand (`Prefer: wait`); or its events (`Accept: text/event-stream`)."""

import re

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.api_doc import PREFER, documented
from drydock.service.context import service_of
from drydock.service.event_streams import request_events
from drydock.service.gate import ROOT
from drydock.service.held import answer_state, hold, preferred_wait_s
from drydock.service.problems import Refusal
from drydock.service.request_view import cursor_position
from drydock.service.sse import last_event_id, streamed, wants_events
from drydock.service.stream_wait import until_more
from drydock.wire.rest import RequestState

router = APIRouter()

_NUMBER = re.compile(r"[0-9]{1,9}")


@router.get(
    ROOT + "/{job_id}/requests/{request_id}",
    **documented(
        RequestState,
        query={"cursor": "where a page of events begins, from `next_cursor`", "max_events": "most events of a page"},
        headers=(PREFER,),
        statuses=(410,),
    ),
)
async def poll(request: Request, job_id: str, request_id: str) -> Response:
    """Status, and the result or its events once there are any; a page without `next_cursor` is the last one."""
    service = service_of(request)
    record = await service.requests.get(job_id, request_id)
    if record is None:
        await service.jobs.require_known(job_id)
        raise Refusal(404, f"job {job_id} has no request {request_id!r}")
    if wants_events(request):
        heard = cursor_position(last_event_id(request))
        return streamed(request_events(service.requests, record, heard))
    max_events = request.query_params.get("max_events", "")
    if max_events and not _NUMBER.fullmatch(max_events):
        raise Refusal(422, f"max_events: {max_events[:80]!r} is not a number")
    wait_s = preferred_wait_s(request, service.settings.max_wait_s)
    if wait_s is not None:
        await hold(request, service.requests, record, wait_s)
    cursor = request.query_params.get("cursor")
    await until_more(service.requests, record, cursor)
    return await answer_state(
        service.requests,
        record,
        cursor=cursor,
        max_events=int(max_events) if max_events else None,
        applied_s=wait_s,
    )

"""Server-sent events of a job and of a sub-job's log, so that nobody has to poll (a request's: routes/requests.py)."""

import re
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import event_streams
from drydock.service.api_doc import STATUSES
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.log_choice import chosen_sub_job
from drydock.service.problems import Refusal
from drydock.service.sse import MEDIA_TYPE, last_event_id, streamed
from drydock.wire.answers import Problem

router = APIRouter()

ONLY = ("job", "request")
_LOG_CURSOR = re.compile(r"e\d{1,18}c\d{1,18}")


def _streaming(query: dict[str, str], *statuses: int) -> dict[str, Any]:
    """Arguments of the decorator of a route that answers with events."""
    refusals = {status: {"model": Problem, "description": STATUSES[status]} for status in (401, 403, *statuses)}
    places = [("query", name, text) for name, text in query.items()]
    places.append(("header", "Last-Event-ID", "go on after the event with this id"))
    parameters = [
        {"name": name, "in": place, "required": False, "description": text, "schema": {"type": "string"}}
        for place, name, text in places
    ]
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "Events", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
            **refusals,
        },
        "openapi_extra": {"parameters": parameters},
    }


@router.get(
    ROOT + "/{job_id}/events",
    **_streaming({"only": '"job" or "request": only events of this kind'}, 404, 422, 429),
)
async def job_events(request: Request, job_id: str) -> Response:
    """The job's status and the ends of its requests, as they happen; `only` "job" or "request" leaves out the other."""
    service = service_of(request)
    await service.jobs.require_known(job_id)
    only = request.query_params.get("only")
    if only is not None and only not in ONLY:
        raise Refusal(422, f"only: {only[:80]!r} is none of {', '.join(ONLY)}")
    return streamed(event_streams.job_events(service.requests, service.jobs, job_id, last_event_id(request), only))


@router.get(
    ROOT + "/{job_id}/logs",
    **_streaming({"sub_job_id": "whose log", "cursor": "where to begin, from tail-logs"}, 400, 404, 422, 429),
)
async def log_events(request: Request, job_id: str) -> Response:
    """A sub-job's log from `cursor` (or the last event's id) on, as it is written, until the job is over."""
    service = service_of(request)
    view = await service.jobs.view(job_id)
    sub_job_id = chosen_sub_job(view, request.query_params.get("sub_job_id"))
    cursor = last_event_id(request) or request.query_params.get("cursor") or None
    if cursor is not None and not _LOG_CURSOR.fullmatch(cursor):
        raise Refusal(422, f"cursor: {cursor[:80]!r} is not one that this service made")
    log_dir = service.jobs.log_dir(sub_job_id)
    return streamed(event_streams.log_events(service.requests, service.jobs, job_id, log_dir, cursor))

"""Polling a data-plane request, held open on demand (`Prefer: wait`)."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.held import answer_state, hold, preferred_wait_s
from drydock.service.problems import Refusal

router = APIRouter()


@router.get(ROOT + "/{job_id}/requests/{request_id}")
async def poll(request: Request, job_id: str, request_id: str) -> Response:
    service = service_of(request)
    record = await service.requests.get(job_id, request_id)
    if record is None:
        await service.jobs.require_known(job_id)
        raise Refusal(404, f"job {job_id} has no request {request_id!r}")
    wait_s = preferred_wait_s(request, service.settings.max_wait_s)
    if wait_s is not None:
        await hold(request, service.requests, record, wait_s)
    max_events = request.query_params.get("max_events", "")
    if max_events and not max_events.isdigit():
        raise Refusal(422, f"max_events: {max_events!r} is not a number")
    return await answer_state(
        service.requests,
        record,
        cursor=request.query_params.get("cursor"),
        max_events=int(max_events) if max_events else None,
        applied_s=wait_s,
    )

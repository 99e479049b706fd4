"""The optimizer step."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body, training_requests
from drydock.service.api_doc import IDEMPOTENCY_KEY, PREFER, documented
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.launch import Work, launch
from drydock.wire.answers import RequestStarted
from drydock.wire.rest import RequestState, StepBody

router = APIRouter()


@router.post(
    ROOT + "/{job_id}/step",
    **documented(
        RequestStarted | RequestState, body=StepBody, headers=(PREFER, IDEMPOTENCY_KEY), statuses=(400, 409, 410)
    ),
)
async def step(request: Request, job_id: str) -> Response:
    """Updates the weights with the gradients accumulated since the last step."""

    async def prepare(data: bytes) -> Work:
        job = await service_of(request).jobs.require_running(job_id)
        job.training()
        learning_rate = body.model(StepBody, body.json_object(data)).learning_rate
        return partial(training_requests.step, job, learning_rate)

    return await launch(request, job_id, "step", prepare)

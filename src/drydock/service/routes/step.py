"""The optimizer step."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.launch import Work, launch
from drydock.service.request_table import Outcome, RequestRecord
from drydock.wire.rest import StepBody

router = APIRouter()


@router.post(ROOT + "/{job_id}/step")
async def step(request: Request, job_id: str) -> Response:
    async def prepare(data: bytes) -> Work:
        job = await service_of(request).jobs.require_running(job_id)
        worker = job.training()
        learning_rate = body.model(StepBody, body.json_object(data)).learning_rate

        async def work(_: RequestRecord) -> Outcome:
            reply = await worker.call("step", learning_rate=learning_rate)
            return Outcome(reply.header["result"])

        return work

    return await launch(request, job_id, "step", prepare)

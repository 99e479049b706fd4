"""Save and load a job's training state; the list of its checkpoints."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.launch import Work, launch
from drydock.service.load_body import LoadBody
from drydock.service.problems import Refusal, json_response
from drydock.wire.rest import SaveBody

router = APIRouter()


@router.get(ROOT + "/{job_id}/checkpoints")
async def list_checkpoints(request: Request, job_id: str) -> Response:
    return json_response({"checkpoints": await service_of(request).checkpoints.listing(job_id)})


@router.post(ROOT + "/{job_id}/save")
async def save(request: Request, job_id: str) -> Response:
    async def prepare(data: bytes) -> Work:
        service = service_of(request)
        job = await service.jobs.require_running(job_id)
        job.training()
        parsed = body.model(SaveBody, body.json_object(data))
        checkpoint_id = await service.checkpoints.choose_id(job, parsed)
        return partial(service.checkpoints.save, job, checkpoint_id, parsed.checkpoint_type)

    return await launch(request, job_id, "save", prepare)


@router.post(ROOT + "/{job_id}/load")
async def load(request: Request, job_id: str) -> Response:
    async def prepare(data: bytes) -> Work:
        service = service_of(request)
        job = await service.jobs.require_running(job_id)
        worker = job.training()
        parsed = body.model(LoadBody, body.json_object(data))
        target = parsed.target_sub_job_id
        if target is not None and target not in job.workers:
            raise Refusal(400, f"target_sub_job_id: {target!r} is no sub-job of job {job_id}")
        if target is not None and target != worker.spec.sub_job_id:
            raise Refusal(501, f"target_sub_job_id: {target!r} is no training sub-job; only those load at runtime")
        path = await service.checkpoints.find(parsed.source_job_id or job_id, parsed.checkpoint_id)
        return partial(service.checkpoints.load, job, path)

    return await launch(request, job_id, "load", prepare)

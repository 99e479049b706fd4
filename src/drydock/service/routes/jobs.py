"""Create, read, list and cancel jobs; the capacity question; a job's experiment run."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.gpus import visible_gpus
from drydock.service.problems import json_response
from drydock.wire.rest import JobCreate

router = APIRouter()


@router.post(ROOT)
async def create_job(request: Request) -> Response:
    raw = body.json_object(await request.body())
    create = body.model(JobCreate, raw)
    return json_response(await service_of(request).jobs.create(create, raw))


@router.get(ROOT)
async def list_jobs(request: Request) -> Response:
    """`status` takes one or several, comma-separated; `comment` must match exactly."""
    query = request.query_params
    statuses = {part.strip().lower() for part in query.get("status", "").split(",") if part.strip()}
    return json_response({"jobs": await service_of(request).jobs.views(statuses, query.get("comment"))})


@router.get(ROOT + "/capacity")
async def capacity(request: Request) -> Response:
    """GPUs of this machine. On one without any, jobs run on the CPU and no limit is set (-1)."""
    total = visible_gpus()
    asked = service_of(request).jobs.gpus()
    return json_response(
        {
            "has_reservation": False,
            "max_total_gpus": total or -1,
            "reserved_gpus": 0,
            "in_use_gpus": asked["in_use"],
            "pending_gpus": asked["pending"],
            "available_gpus": max(0, total - asked["in_use"] - asked["pending"]),
        }
    )


@router.get(ROOT + "/{job_id}")
async def get_job(request: Request, job_id: str) -> Response:
    return json_response(await service_of(request).jobs.view(job_id))


@router.post(ROOT + "/{job_id}:cancel")
async def cancel_job(request: Request, job_id: str) -> Response:
    """Answered once the job's processes are gone; cancelling a job that is over changes nothing."""
    return json_response(await service_of(request).jobs.cancel(job_id))


@router.get(ROOT + "/{job_id}/experiment-run")
async def experiment_run(request: Request, job_id: str) -> Response:
    job = await service_of(request).jobs.view(job_id)
    return json_response(
        {"experiment_name": job.get("experiment_name") or "drydock", "experiment_run_name": job["job_id"]}
    )

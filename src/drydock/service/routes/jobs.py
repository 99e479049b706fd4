"""Create, read, list and cancel jobs; a job's experiment run."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body
from drydock.service.access import require_source
from drydock.service.api_doc import IDEMPOTENCY_KEY, documented
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.identity import identity_of, visible_owner
from drydock.service.model_admission import check_models
from drydock.service.model_places import placed
from drydock.service.problems import json_response
from drydock.wire.answers import ExperimentRun, JobList
from drydock.wire.rest import CancelBody, Job, JobCreate

router = APIRouter()


@router.post(ROOT, **documented(Job, body=JobCreate, headers=(IDEMPOTENCY_KEY,), statuses=(400, 409, 413, 501)))
async def create_job(request: Request) -> Response:
    """Answered at once; the job is `running` when it can take work. Keys that the service does not know are echoed."""
    data = await request.body()
    raw = body.json_object(data)
    create = body.model(JobCreate, raw)
    service = service_of(request)
    for index, config in enumerate(create.sub_job_configs):
        if config.source_checkpoint_info is not None:
            where = f"sub_job_configs.{index}.source_checkpoint_info.source_job_id"
            await require_source(request, config.source_checkpoint_info.source_job_id, where)
    identity = identity_of(request)
    raw = await asyncio.to_thread(placed, raw, service.settings.model_dirs, identity)
    create = body.model(JobCreate, raw)
    await check_models(create, service.pool, service.checkpoints)
    key, _ = body.idempotency(request, data)
    return json_response(await service.jobs.create(create, raw, identity.user, identity.role.value, key))


@router.get(
    ROOT,
    **documented(
        JobList,
        query={
            "status": "one or several statuses, comma-separated",
            "comment": "exactly this comment",
            "name": "exactly this name",
            "user": "jobs of this user (admins)",
        },
    ),
)
async def list_jobs(request: Request) -> Response:
    """`status` takes one or several, comma-separated; `comment`, `name` and `user` must match exactly.

    The caller's own jobs, or everybody's where its role allows that.
    """
    query = request.query_params
    statuses = {part.strip().lower() for part in query.get("status", "").split(",") if part.strip()}
    views = await service_of(request).jobs.views(
        statuses,
        comment=query.get("comment"),
        name=query.get("name"),
        owner=visible_owner(identity_of(request), query.get("user")),
    )
    return json_response({"jobs": views})


@router.get(ROOT + "/{job_id}", **documented(Job))
async def get_job(request: Request, job_id: str) -> Response:
    """The job as it was sent, with its status and its sub-jobs."""
    return json_response(await service_of(request).jobs.view(job_id))


@router.post(ROOT + "/{job_id}:cancel", **documented(Job, body=CancelBody, body_required=False, statuses=(400,)))
async def cancel_job(request: Request, job_id: str) -> Response:
    """Answered once the job's processes are gone; cancelling a job that is over changes nothing."""
    given = body.model(CancelBody, body.json_object(await request.body()))
    return json_response(await service_of(request).jobs.cancel(job_id, given.reason))


@router.get(ROOT + "/{job_id}/experiment-run", **documented(ExperimentRun))
async def experiment_run(request: Request, job_id: str) -> Response:
    """Under which names the job's artifacts are filed."""
    job = await service_of(request).jobs.view(job_id)
    return json_response(
        {"experiment_name": job.get("experiment_name") or "drydock", "experiment_run_name": job["job_id"]}
    )

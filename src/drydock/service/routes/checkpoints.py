"""A job's checkpoints: save, load, list, export, delete.

An export names every file by an address that opens it for an hour without a token (routes/signed.py).
"""

import time
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body
from drydock.service.access import require_source
from drydock.service.api_doc import IDEMPOTENCY_KEY, PREFER, documented
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.launch import Work, launch
from drydock.service.load_body import LoadBody
from drydock.service.problems import Refusal, json_response
from drydock.service.routes.signed import file_url
from drydock.service.signed_urls import VALID_S
from drydock.service.timestamps import iso
from drydock.wire.answers import CheckpointDeleted, CheckpointExport, CheckpointList, RequestStarted
from drydock.wire.rest import RequestState, SaveBody

router = APIRouter()

_STARTS: dict[str, Any] = {
    "answer": RequestStarted | RequestState,
    "headers": (PREFER, IDEMPOTENCY_KEY),
    "statuses": (400, 409, 410, 501),
}


@router.get(ROOT + "/{job_id}/checkpoints", **documented(CheckpointList))
async def list_checkpoints(request: Request, job_id: str) -> Response:
    """Oldest first; a job that is over still has its own."""
    return json_response({"checkpoints": await service_of(request).checkpoints.listing(job_id)})


@router.post(ROOT + "/{job_id}/save", **documented(body=SaveBody, **_STARTS))
async def save(request: Request, job_id: str) -> Response:
    """Writes a checkpoint of the job's trainer."""

    async def prepare(data: bytes) -> Work:
        service = service_of(request)
        job = await service.jobs.require_running(job_id)
        job.training()
        parsed = body.model(SaveBody, body.json_object(data))
        if parsed.merge and parsed.checkpoint_type != "weights-only":
            raise Refusal(422, "merge: a resumable checkpoint keeps the adapter apart; save it as weights-only")
        checkpoint_id = service.checkpoints.choose_id(job, parsed)
        return partial(service.checkpoints.save, job, checkpoint_id, parsed.checkpoint_type, parsed.merge)

    return await launch(request, job_id, "save", prepare)


@router.post(ROOT + "/{job_id}/load", **documented(body=LoadBody, **_STARTS))
async def load(request: Request, job_id: str) -> Response:
    """Has the job's trainer go on from a checkpoint, of this or of another job."""

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
        if parsed.source_job_id is not None:
            await require_source(request, parsed.source_job_id, "source_job_id")
        path = await service.checkpoints.find(parsed.source_job_id or job_id, parsed.checkpoint_id)
        return partial(service.checkpoints.load, job, path)

    return await launch(request, job_id, "load", prepare)


@router.post(ROOT + "/{job_id}/checkpoints/{checkpoint_id}:export", **documented(CheckpointExport, statuses=(410,)))
async def export_checkpoint(request: Request, job_id: str, checkpoint_id: str) -> Response:
    """Addresses of all files, each open for an hour to whoever holds it."""
    expires_at = int(time.time() + VALID_S)
    files = await service_of(request).checkpoints.exported_files(job_id, checkpoint_id, expires_at)
    return json_response(
        {
            "checkpoint_id": checkpoint_id,
            "files": [
                {
                    "filename": name,
                    "url": file_url(request, job_id, checkpoint_id, name, expires_at),
                    "size_bytes": size,
                }
                for name, size in files.items()
            ],
            "expires_at": iso(expires_at),
        }
    )


@router.delete(ROOT + "/{job_id}/checkpoints/{checkpoint_id}", **documented(CheckpointDeleted, statuses=(409,)))
async def delete_checkpoint(request: Request, job_id: str, checkpoint_id: str) -> Response:
    """Removes a checkpoint for good; one that is being loaded or that a live job started from stays."""
    await service_of(request).checkpoints.delete(job_id, checkpoint_id)
    return json_response({"deleted": True, "job_id": job_id, "checkpoint_id": checkpoint_id})

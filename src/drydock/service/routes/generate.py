"""Sampling: POST generate, JSON or a DSSST1 frame, bare or in chunks."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body, generation
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.held import answer_started
from drydock.service.problems import json_response
from drydock.service.upload import receive
from drydock.wire.rest import GenerateBody

router = APIRouter()

HANG_UP_GRACE_S = 20.0
"""How long a caller that hung up may take to ask again with its Idempotency-Key."""


@router.post(ROOT + "/{job_id}/generate")
async def generate(request: Request, job_id: str) -> Response:
    """A caller that hangs up while its answer is held and does not ask again soon aborts the sampling."""
    service = service_of(request)
    data = await request.body()
    limit_s = service.settings.max_wait_s
    key, sha256 = body.idempotency(request, data)
    known = await service.requests.find(job_id, key, sha256)
    if known is not None:
        return await answer_started(request, service.requests, known, limit_s)
    job = await service.jobs.require_running(job_id)
    upload = await receive(data, job.chunks)
    if upload is None:
        return json_response({"chunk_cached": True})
    value, metadata = body.object_or_frame(upload.frame)
    parsed = body.model(GenerateBody, value)
    generation.check(job, parsed)
    record = await service.requests.find(job_id, key, sha256) or service.requests.start(
        job_id,
        "generate",
        partial(generation.generate, job, parsed),
        idempotency_key=key,
        body_sha256=sha256,
        wants_tensors=body.wants_tensors(metadata),
    )
    grace_s = 0.0 if key is None else HANG_UP_GRACE_S
    abandon = partial(service.requests.afterwards, partial(generation.abandon, job, record, grace_s))
    return await answer_started(request, service.requests, record, limit_s, abandon)

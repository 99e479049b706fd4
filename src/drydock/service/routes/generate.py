"""Sampling: POST generate and generate-stream, JSON or a DSSST1 frame, bare or in chunks."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body, generation
from drydock.service.api_doc import IDEMPOTENCY_KEY, PREFER, documented
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.generation_stream import stream
from drydock.service.held import answer_started
from drydock.service.live_job import LiveJob
from drydock.service.problems import json_response
from drydock.service.request_record import RequestRecord
from drydock.service.request_view import STREAM_KIND
from drydock.service.upload import receive
from drydock.wire.answers import ChunkCached, RequestStarted, StreamStarted
from drydock.wire.rest import GenerateBody, RequestState

router = APIRouter()

HANG_UP_GRACE_S = 20.0
"""How long a caller that hung up may take to ask again with its Idempotency-Key."""


@router.post(
    ROOT + "/{job_id}/generate",
    **documented(
        RequestStarted | RequestState | ChunkCached,
        body=GenerateBody,
        octets="a DSSST1 frame of the same object, or one chunk of it",
        headers=(PREFER, IDEMPOTENCY_KEY),
        statuses=(400, 409, 410, 413),
    ),
)
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
    frame = await receive(data, job.chunks)
    if frame is None:
        return json_response({"chunk_cached": True})
    parsed, metadata = await body.aside(partial(_read, job), frame)
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


@router.post(
    ROOT + "/{job_id}/generate-stream",
    **documented(
        StreamStarted | ChunkCached,
        body=GenerateBody,
        octets="a DSSST1 frame of the same object, or one chunk of it",
        headers=(IDEMPOTENCY_KEY,),
        statuses=(400, 409, 410, 413),
    ),
)
async def generate_stream(request: Request, job_id: str) -> Response:
    """Results are told one by one, as events of the request, in the order in which prompts end."""
    service = service_of(request)
    data = await request.body()
    key, sha256 = body.idempotency(request, data)
    known = await service.requests.find(job_id, key, sha256)
    if known is not None:
        return _started(known)
    job = await service.jobs.require_running(job_id)
    frame = await receive(data, job.chunks)
    if frame is None:
        return json_response({"chunk_cached": True})
    parsed, _ = await body.aside(partial(_read, job), frame)
    return _started(
        await service.requests.find(job_id, key, sha256)
        or service.requests.start(
            job_id,
            STREAM_KIND,
            partial(stream, job, parsed, service.requests),
            idempotency_key=key,
            body_sha256=sha256,
            arguments={"count": len(parsed.prompts)},
        )
    )


def _read(job: LiveJob, data: bytes) -> tuple[GenerateBody, dict[str, Any]]:
    value, metadata = body.object_or_frame(data)
    parsed = body.model(GenerateBody, value)
    generation.check(job, parsed)
    return parsed, metadata


def _started(record: RequestRecord) -> Response:
    count = (record.arguments or {}).get("count", 0)
    return json_response({"request_id": record.request_id, "job_id": record.job_id, "count": count})

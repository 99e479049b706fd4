"""Gradients: POST forward-backward, always in chunk envelopes that carry the call's identity.

The same group id with the same frame is answered with the request it first became, however often it comes.
"""

import asyncio
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body, training_batch, training_requests, upload
from drydock.service.api_doc import PREFER, documented
from drydock.service.chunk_groups import conflict
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.held import answer_started
from drydock.service.problems import Refusal, json_response
from drydock.service.row_limits import RowLimits
from drydock.wire.answers import ChunkCached, RequestStarted
from drydock.wire.rest import RequestState

router = APIRouter()


@router.post(
    ROOT + "/{job_id}/forward-backward",
    **documented(
        RequestStarted | RequestState | ChunkCached,
        octets="one chunk of a DSSST1 frame {args, kwargs, context, processing}",
        headers=(PREFER,),
        statuses=(400, 409, 410, 413),
    ),
)
async def forward_backward(request: Request, job_id: str) -> Response:
    """Adds one batch's gradients. A repeated upload is answered with the request that it first became."""
    service = service_of(request)
    chunk = await upload.parse(await upload.octets(request))
    descriptor = chunk.descriptor
    key, sha256 = None, None
    if descriptor is not None:
        key, sha256 = f"chunks:{descriptor.chunk_group_id}", descriptor.frame_sha256
        try:
            known = await service.requests.find(job_id, key, sha256)
        except Refusal as refusal:
            raise conflict(descriptor) from refusal
        if known is not None:
            if descriptor.chunk_idx < descriptor.total_chunks - 1:
                return json_response({"chunk_cached": True})
            return await answer_started(request, service.requests, known, service.settings.max_wait_s)
    job = await service.jobs.require_running(job_id)
    spec = job.training().spec
    whole = await upload.join(chunk, job.chunks)
    if whole is None:
        return json_response({"chunk_cached": True})
    limits = RowLimits.of(spec.sub_job_id, spec.config)
    frame = await asyncio.to_thread(training_batch.check, whole.frame, limits)
    record = await service.requests.find(job_id, key, sha256) or service.requests.start(
        job_id,
        "forward-backward",
        partial(training_requests.forward_backward, job, whole.frame),
        idempotency_key=key,
        body_sha256=sha256,
        wants_tensors=body.wants_tensors(frame.metadata),
    )
    await service.requests.written(record)
    return await answer_started(request, service.requests, record, service.settings.max_wait_s)

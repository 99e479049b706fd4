"""Gradients: POST forward-backward, always in chunk envelopes that carry the call's identity.

The same group id with the same frame is answered with the request it first became, however often it comes.
"""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import body, training_batch, upload
from drydock.service.chunk_groups import conflict
from drydock.service.context import service_of
from drydock.service.gate import ROOT
from drydock.service.held import answer_started
from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal, json_response
from drydock.service.request_table import Outcome, RequestRecord

router = APIRouter()


@router.post(ROOT + "/{job_id}/forward-backward")
async def forward_backward(request: Request, job_id: str) -> Response:
    service = service_of(request)
    chunk = await upload.parse(await request.body())
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
    job.training()
    whole = await upload.join(chunk, job.chunks)
    if whole is None:
        return json_response({"chunk_cached": True})
    frame = await asyncio.to_thread(training_batch.check, whole.frame)
    record = await service.requests.find(job_id, key, sha256) or service.requests.start(
        job_id,
        "forward-backward",
        lambda record: _work(job, whole.frame, record),
        idempotency_key=key,
        body_sha256=sha256,
        wants_tensors=body.wants_tensors(frame.metadata),
    )
    await service.requests.written(record)
    return await answer_started(request, service.requests, record, service.settings.max_wait_s)


async def _work(job: LiveJob, frame: bytes, _: RequestRecord) -> Outcome:
    worker = job.training()
    reply = await worker.call("forward-backward", frame)
    summary = reply.header["result"]
    job.last_loss = summary.get("avg_loss")
    if reply.payload:
        return Outcome(frame=reply.payload)
    return Outcome(summary)

"""The generic operation route: weight sync and forward as requests to poll, the small ones answered inline."""

import asyncio
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from drydock.service import adapter_operations, body, forward, generation, logs, weight_sync
from drydock.service.api_doc import IDEMPOTENCY_KEY, PREFER, documented
from drydock.service.ask_all import ask_all
from drydock.service.context import Service, service_of
from drydock.service.gate import ROOT
from drydock.service.job_view import SEGMENT_TYPES
from drydock.service.launch import Work, launch
from drydock.service.live_job import LiveJob
from drydock.service.log_choice import chosen_sub_job
from drydock.service.problems import Refusal, json_response
from drydock.service.request_view import STREAM_KIND
from drydock.service.row_limits import RowLimits
from drydock.service.worker_group import WorkerGroup
from drydock.wire.answers import OperationAnswer, RequestStarted
from drydock.wire.rest import OperationBody, RequestState, WeightSyncPayload

router = APIRouter()

RESET_TIMEOUT_S = 60.0
CANCEL_TIMEOUT_S = 5.0

NOT_SERVED = {
    "bootstrap-router-replay": "no engine of this service replays expert routing",
    "router-replay-discard": "no engine of this service replays expert routing, so there is nothing to discard",
    "zmd-events": "such events belong to the hosted service; read logs with tail-logs",
}
UNKNOWN = (
    "known are weight-sync, forward, load-adapter, drop-adapter, list-adapters, reset-prefix-cache, cancel-request and "
    "tail-logs"
)


@router.post(
    ROOT + "/{job_id}/operation",
    **documented(
        RequestStarted | RequestState | OperationAnswer,
        body=OperationBody,
        headers=(PREFER, IDEMPOTENCY_KEY),
        statuses=(400, 409, 410, 413, 501, 503, 504),
    ),
)
async def operation(request: Request, job_id: str) -> Response:
    """weight-sync and forward are polled; all others are answered at once."""
    service = service_of(request)
    parsed = body.model(OperationBody, await body.aside(body.json_object, await request.body()))
    match parsed.operation_type:
        case "weight-sync":
            return await launch(request, job_id, "weight-sync", partial(_weight_sync, service, job_id, parsed))
        case "reset-prefix-cache":
            return json_response(await _reset_prefix_cache(service, job_id, parsed))
        case "load-adapter":
            return json_response(await adapter_operations.load(request, job_id, parsed))
        case "drop-adapter":
            return json_response(await adapter_operations.drop(service, job_id, parsed))
        case "list-adapters":
            return json_response(await adapter_operations.held(service, job_id))
        case "cancel-request":
            return json_response(await _cancel_request(service, job_id, parsed))
        case "tail-logs":
            return json_response(await _tail_logs(service, job_id, parsed))
        case "forward":
            return await launch(request, job_id, "forward", partial(_forward, service, job_id, parsed))
        case other:
            raise Refusal(501, f"operation_type: {other!r} is not served: {NOT_SERVED.get(other, UNKNOWN)}")


async def _weight_sync(service: Service, job_id: str, parsed: OperationBody, _: bytes) -> Work:
    job = await service.jobs.require_running(job_id)
    payload = body.model(WeightSyncPayload, parsed.payload or {})
    source, targets = weight_sync.check(job, payload)
    return partial(weight_sync.weight_sync, job, source, targets, service.settings.weights_dir, payload.weight_format)


async def _forward(service: Service, job_id: str, parsed: OperationBody, _: bytes) -> Work:
    """Log-probs of given rows without gradients, under the trainer's weights unless a log-prob sub-job is named."""
    job = await service.jobs.require_running(job_id)
    scorers = job.of_type("training") + job.of_type("log_probability")
    if parsed.sub_job_id is not None or parsed.sub_job_type is not None:
        scorers = [worker for worker in _targets(job, parsed) if worker in scorers]
    if not scorers:
        raise Refusal(400, "sub_job_id: forward runs on a training or a log_probability sub-job")
    spec = scorers[0].spec
    frame = await asyncio.to_thread(forward.frame_of, parsed.payload or {}, RowLimits.of(spec.sub_job_id, spec.config))
    return partial(forward.forward, job, spec.sub_job_id, frame)


async def _reset_prefix_cache(service: Service, job_id: str, parsed: OperationBody) -> dict[str, Any]:
    job = await service.jobs.require_running(job_id)
    named = parsed.sub_job_id is not None or parsed.sub_job_type is not None
    workers = [w for w in _targets(job, parsed) if w.spec.job_type == "sampling"] if named else job.sampling()
    if not workers:
        raise Refusal(400, "reset-prefix-cache: only sampling sub-jobs have a prefix cache")
    timeout_s = (parsed.payload or {}).get("timeout_s", RESET_TIMEOUT_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= 3600:
        raise Refusal(422, f"payload.timeout_s: {timeout_s!r} is not between 0 and 3600 seconds")
    await ask_all(workers, "reset-prefix-cache", timeout_s)
    return {"reset": True, "sub_job_ids": [worker.spec.sub_job_id for worker in workers]}


async def _cancel_request(service: Service, job_id: str, parsed: OperationBody) -> dict[str, Any]:
    """Sampling is aborted; an operation that the trainer has begun or queued runs to its end."""
    job = await service.jobs.require_running(job_id)
    request_id = (parsed.payload or {}).get("request_id")
    if not isinstance(request_id, str):
        raise Refusal(422, "payload.request_id: missing")
    record = await service.requests.get(job_id, request_id)
    if record is None:
        raise Refusal(404, f"job {job_id} has no request {request_id!r}")
    if record.kind in ("generate", STREAM_KIND):
        await generation.abort(job, request_id)
        await service.requests.hold(record, CANCEL_TIMEOUT_S)
    answer = {"request_id": request_id, "status": record.status.value, "cancelled": record.status == "cancelled"}
    if not record.status.terminal:
        answer["message"] = f"a {record.kind} request cannot be interrupted; it will run to its end"
    return answer


async def _tail_logs(service: Service, job_id: str, parsed: OperationBody) -> dict[str, Any]:
    """Works for a job in any state, since its logs outlive it."""
    chosen = chosen_sub_job(await service.jobs.view(job_id), parsed.sub_job_id, _job_type(parsed))
    payload = parsed.payload or {}
    cursor, max_lines = payload.get("cursor"), payload.get("max_lines")
    if not isinstance(cursor, str | None) or isinstance(max_lines, bool) or not isinstance(max_lines, int | None):
        raise Refusal(422, "payload: cursor is a string and max_lines an integer")
    return await asyncio.to_thread(logs.tail, service.jobs.log_dir(chosen), cursor, max_lines)


def _job_type(parsed: OperationBody) -> str | None:
    if parsed.sub_job_type is None:
        return None
    return SEGMENT_TYPES.get(parsed.sub_job_type.lower(), parsed.sub_job_type.lower())


def _targets(job: LiveJob, parsed: OperationBody) -> list[WorkerGroup]:
    wanted = _job_type(parsed)
    found = [
        worker
        for name, worker in job.workers.items()
        if parsed.sub_job_id in (None, name) and wanted in (None, worker.spec.job_type)
    ]
    if not found:
        raise Refusal(400, f"sub_job_id: no sub-job of job {job.job_id} is {parsed.sub_job_id!r} of type {wanted!r}")
    return found

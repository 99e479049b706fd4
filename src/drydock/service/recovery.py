"""What a new API process takes over from the one before it: jobs, their workers, and requests that had not ended.

A request is taken up by its kind. One whose operation the worker knows is waited for as if nothing had happened; one
that the worker never heard of changed nothing and fails with ServiceRestarted; a weight sync runs again. A generate
that was not written yet is known from the worker, which holds its row. Everything is decided before the first call
comes in.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from drydock.errors import ServiceRestarted
from drydock.service import generation, generation_stream, schema, training_requests, weight_sync
from drydock.service.context import Service
from drydock.service.forward import forward
from drydock.service.live_job import LiveJob
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.schema import Row
from drydock.wire.status import JobStatus, RequestStatus

type Work = Callable[[RequestRecord], Awaitable[Outcome]]

logger = logging.getLogger(__name__)


async def recover(service: Service) -> None:
    """Takes over jobs and requests; returns when every job is supervised again."""
    unfinished: dict[str, list[Row]] = {}
    for status in RequestStatus:
        if not status.terminal:
            for row in await service.store.rows(schema.requests, status=status.value):
                unfinished.setdefault(row["job_id"], []).append(row)
    jobs = await service.jobs.recover(unfinished)
    for job in jobs:
        rows = unfinished.pop(job.job_id, [])
        rows += await _unwritten(service, job, {row["request_id"] for row in rows})
        await _forget_told(service, job)
        claimed: set[str] = set()
        for row in sorted(rows, key=lambda row: row["created_at"]):
            record = RequestRecord.from_row(row)
            if record.kind != "weight-sync":
                claimed.add(record.request_id)
            service.requests.resume(record, _work(service, job, record))
        for worker in job.workers.values():
            worker.drop_unclaimed(claimed)
        if rows:
            logger.info("job %s goes on with %d unfinished requests", job.job_id, len(rows))
    for row in (row for rows in unfinished.values() for row in rows):
        service.requests.resume(RequestRecord.from_row(row), _not_begun)
    _remove_stale_weights(service.settings.weights_dir, jobs)
    for job in jobs:
        service.jobs.supervise(job)


async def _unwritten(service: Service, job: LiveJob, known: set[str]) -> list[Row]:
    """Rows of requests that only the workers know."""
    rows: dict[str, Row] = {}
    for worker in job.workers.values():
        for operation in worker.known_operations.values():
            row = operation["request"]
            if row is not None and row["request_id"] not in known:
                rows[row["request_id"]] = row
    return [row for key, row in rows.items() if await service.store.one(schema.requests, request_id=key) is None]


async def _forget_told(service: Service, job: LiveJob) -> None:
    """Drops a notice of lost steps that a request has told already, just before the restart."""
    if job.rewound is None:
        return
    told = await service.store.rows(schema.requests, job_id=job.job_id, error_type="TrainingRewound")
    if any(row["updated_at"] >= job.rewound["at"] for row in told):
        job.rewound = None


def _work(service: Service, job: LiveJob, record: RequestRecord) -> Work:
    given = record.arguments or {}
    if job.status is not JobStatus.RUNNING:
        return _not_begun
    match record.kind:
        case "forward-backward":
            return partial(training_requests.forward_backward, job, b"")
        case "step":
            return partial(training_requests.step, job, None)
        case "forward" if given:
            return partial(forward, job, given["sub_job_id"], (b"", record.wants_tensors))
        case "save" if given:
            how = given["checkpoint_id"], given["checkpoint_type"], given.get("merge", False)
            return partial(service.checkpoints.save, job, *how)
        case "load" if given:
            return partial(service.checkpoints.load, job, Path(given["path"]))
        case "generate" if given:
            return partial(generation.resume, job)
        case "generate-stream" if "workers" in given:
            return partial(generation_stream.resume, job, service.requests)
        case "weight-sync" if given:
            source, targets = job.workers[given["source"]], [job.workers[name] for name in given["targets"]]
            weight_format = given.get("weight_format")
            return partial(weight_sync.weight_sync, job, source, targets, service.settings.weights_dir, weight_format)
        case _:
            return _not_begun


async def _not_begun(record: RequestRecord) -> Outcome:
    raise ServiceRestarted(
        f"the service restarted before this {record.kind} request was begun: it changed nothing; send it again"
    )


def _remove_stale_weights(folder: Path, jobs: list[LiveJob]) -> None:
    kept = {path for job in jobs for path in weight_sync.kept_files(job)}
    for path in folder.glob("req_*.safetensors"):
        if str(path) not in kept:
            path.unlink(missing_ok=True)

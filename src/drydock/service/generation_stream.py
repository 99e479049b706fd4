"""Sampling as a stream: every prompt is an operation of its own, told as an event when it ends.

    {"type": "result", "index", "result"}
    {"type": "error", "index", "error"}
    {"type": "done", "completed", "failed"}

A prompt that fails does not end the others. Events are kept with the request, so that a page of them can be asked for
again by its cursor; a poll without a cursor goes on where the last one without stopped, as callers of the hosted API
expect. What was told is stored with the finished request.
"""

import asyncio
from collections.abc import Sequence

from drydock.errors import WorkerLost
from drydock.service.generation import replica, sample, sampled
from drydock.service.live_job import LiveJob
from drydock.service.meters import Metered
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.worker_group import OperationError, WorkerGroup
from drydock.wire.rest import GenerateBody


async def stream(job: LiveJob, body: GenerateBody, table: RequestTable, record: RequestRecord) -> Outcome:
    """Samples all prompts. Raises OperationError when the request was cancelled, WorkerLost when a worker died."""
    shares: dict[WorkerGroup, list[int]] = {}
    workers: list[WorkerGroup] = []
    for index in range(len(body.prompts)):
        worker = replica(job.sampling(), body.routing_key_of(index), shares, strict=body.strict)
        shares.setdefault(worker, []).append(index)
        workers.append(worker)
    names = [worker.spec.sub_job_id for worker in workers]
    record.arguments = {"count": len(workers), "workers": names}
    return await _tell_all(workers, body, table, record)


async def resume(job: LiveJob, table: RequestTable, record: RequestRecord) -> Outcome:
    """As `stream`, for a request that an earlier API process gave to the workers; everything is told again."""
    names = (record.arguments or {}).get("workers") or ()
    return await _tell_all([job.workers[name] for name in names], None, table, record)


async def _tell_all(
    workers: Sequence[WorkerGroup], body: GenerateBody | None, table: RequestTable, record: RequestRecord
) -> Outcome:
    failed = 0
    metered: list[Metered] = []

    async def one(index: int) -> None:
        nonlocal failed
        try:
            [result] = await sample(workers[index], body, [index], record)
        except OperationError as error:
            if error.cancelled:
                raise
            failed += 1
            table.emit(record, {"type": "error", "index": index, "error": error.message})
        else:
            metered.extend(sampled(workers[index].spec.sub_job_id, [result]))
            table.emit(record, {"type": "result", "index": index, "result": result})

    endings = await asyncio.gather(*(one(index) for index in range(len(workers))), return_exceptions=True)
    errors = [ending for ending in endings if isinstance(ending, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, WorkerLost), reverse=True):
        raise error
    completed = len(workers) - failed
    table.emit(record, {"type": "done", "completed": completed, "failed": failed})
    return Outcome({"completed": completed, "failed": failed, "events": record.events}, metered=tuple(metered))

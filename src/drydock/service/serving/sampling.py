"""Sampling for a serving call: a generate request of the job, whole or told piece by piece.

It is a request like any other: seen by its job, metered, and ended when its caller hangs up.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request

from drydock.chat import RequestRefused
from drydock.errors import ServiceError
from drydock.service import generation
from drydock.service.context import Service
from drydock.service.held import hold
from drydock.service.live_job import LiveJob
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.worker_group import WorkerGroup
from drydock.wire.rest import GenerateBody
from drydock.wire.status import RequestStatus

DEADLINE_S = 3600.0
"""Longest time that one call may take."""
END_WAIT_S = 10.0
"""How long after its last piece a request may take to end."""

type Told = dict[str, Any] | list[dict[str, Any]]
"""A piece (see `drydock.service.sample_form`), or at the end the results of all prompts."""


async def sampled(request: Request, service: Service, job: LiveJob, body: GenerateBody) -> list[dict[str, Any]]:
    """The results of all prompts. Raises RequestRefused or ServiceError when there are none."""
    record = service.requests.start(job.job_id, "generate", partial(generation.generate, job, body))
    await hold(request, service.requests, record, DEADLINE_S)
    if not record.status.terminal:
        await generation.abort(job, record.request_id)
    return _results(record)


async def pieces(service: Service, job: LiveJob, body: GenerateBody) -> AsyncGenerator[Told]:
    """Pieces as they come, then the results; closing it earlier ends the sampling. Raises as `sampled`."""
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    worker = generation.replica(job.sampling(), body.routing_key_of(0), {})
    record = service.requests.start(job.job_id, "generate", partial(_streamed, worker, body, queue))
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    try:
        while (piece := await _before(deadline, queue)) is not None:
            yield piece
        await service.requests.hold(record, END_WAIT_S)
        yield _results(record)
    except TimeoutError as error:
        raise ServiceError(f"the completion took longer than {DEADLINE_S:g} s and was ended") from error
    finally:
        if not record.status.terminal:
            service.requests.afterwards(partial(generation.abort, job, record.request_id))


async def first_of(told: AsyncGenerator[Told]) -> AsyncGenerator[Told]:
    """The same, once the first has come: what fails before that is raised here, not in the middle of an answer."""
    first = await anext(told)

    async def again() -> AsyncGenerator[Told]:
        async with aclosing(told):
            yield first
            async for item in told:
                yield item

    return again()


async def _before(deadline: float, queue: asyncio.Queue[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The next piece. Its own timeout: one around a `yield` would belong to whichever task read the first piece."""
    async with asyncio.timeout_at(deadline):
        return await queue.get()


async def _streamed(
    worker: WorkerGroup, body: GenerateBody, queue: asyncio.Queue[dict[str, Any] | None], record: RequestRecord
) -> Outcome:
    indices = list(range(len(body.prompts)))
    record.arguments = {"shares": {worker.spec.sub_job_id: indices}}
    try:
        with worker.heard(f"{record.request_id}/0", queue.put_nowait):
            results = await generation.sample(worker, body, indices, record, streamed=True)
    finally:
        queue.put_nowait(None)
    return Outcome({"results": results}, metered=tuple(generation.sampled(worker.spec.sub_job_id, results)))


def _results(record: RequestRecord) -> list[dict[str, Any]]:
    if record.status is RequestStatus.COMPLETED and record.outcome.result is not None:
        return record.outcome.result["results"]
    message = record.error or f"the completion took longer than {DEADLINE_S:g} s and was ended"
    if record.error_type == "UserError":
        code = "context_length_exceeded" if "max_seq_len" in message else None
        raise RequestRefused(message, code=code)
    raise ServiceError(f"sampling failed: {message}")

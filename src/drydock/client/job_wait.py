"""Waiting for a job to run: by the job's events where the server has them, else by asking at a growing interval."""

import asyncio
import contextlib
from typing import Final

from drydock.client.call import Call
from drydock.client.server_events import NoEvents, follow
from drydock.client.transport import Transport, job_path
from drydock.errors import JobFailed
from drydock.wire.rest import Job
from drydock.wire.status import JobStatus

FIRST_INTERVAL_S: Final = 0.2
INTERVAL_GROWTH: Final = 1.25
LAST_INTERVAL_S: Final = 3.0


async def until_running(transport: Transport, call: Call, job_id: str, *, follow_events: bool) -> Job:
    """The job once it is running. Raises JobFailed, with the job's reason, when it ends instead."""
    interval_s = FIRST_INTERVAL_S
    while True:
        job = call.read(Job.model_validate, await transport.send(call, "GET", job_path(job_id)))
        if job.status is JobStatus.RUNNING:
            return job
        if job.status.terminal:
            raise JobFailed(f"job {job_id} is {job.status} and will not run: {job.reason or 'no reason given'}")
        call.last_failure = f"it is still {job.status}"
        if follow_events and await _decided(transport, call, job_id):
            continue
        follow_events = False
        await asyncio.sleep(interval_s)
        interval_s = min(interval_s * INTERVAL_GROWTH, LAST_INTERVAL_S)


async def _decided(transport: Transport, call: Call, job_id: str) -> bool:
    """Whether the job's events told that it runs or is over; False when there are no events to tell."""
    events = follow(transport, call, job_path(job_id, "/events"), {"only": "job"})
    async with contextlib.aclosing(events):
        try:
            async for event in events:
                status = JobStatus.parse(event.data.get("status"))
                if status is JobStatus.RUNNING or status.terminal:
                    return True
                call.last_failure = f"it is still {status}"
        except NoEvents:
            return False
    return False

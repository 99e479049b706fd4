"""A job for the length of a block: created on entry, cancelled on exit, with a reason that tells a finished one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from drydock.client import TrainingClient
from drydock.deadline import deadline
from drydock.errors import DrydockError
from drydock.training.config import TrainerDeadlineConfig
from drydock.wire.rest import FINISHED, Job, JobCreate

log = logging.getLogger(__name__)


@asynccontextmanager
async def running_job(
    client: TrainingClient,
    request: JobCreate,
    job_id_file: Path,
    deadlines: TrainerDeadlineConfig,
    waiting: Callable[[str], None],
) -> AsyncIterator[Job]:
    """Create the job, wait until it runs, and cancel it on exit. `waiting` is told what is waited for."""
    why = None
    waiting("the training service to accept the job")
    job = await _create(client, request, deadlines.shutdown_s)
    job_id_file.write_text(job.job_id + "\n")
    try:
        waiting(f"job {job.job_id} to load its models")
        yield await client.wait_for_job(job.job_id, deadline_s=deadlines.job_running_s)
        why = f"{FINISHED}: its run is at its end"
    finally:
        await _cancel(client, job.job_id, deadlines.shutdown_s, why)


async def _create(client: TrainingClient, request: JobCreate, limit_s: float) -> Job:
    """Create the job. Cancelled meanwhile, wait for the answer all the same: what it names must be cancelled."""
    creating = asyncio.create_task(client.create_job(request))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        await asyncio.wait({creating}, timeout=limit_s)
        if creating.done() and not creating.exception():
            await _cancel(client, creating.result().job_id, limit_s)
        else:
            creating.cancel()
        raise


async def _cancel(client: TrainingClient, job_id: str, limit_s: float, why: str | None = None) -> None:
    try:
        async with deadline(f"job {job_id} to be cancelled", limit_s):
            await client.cancel_job(job_id, why)
        log.info("job %s cancelled", job_id)
    except DrydockError as error:
        log.error("job %s could not be cancelled, cancel it by hand: %s", job_id, error)

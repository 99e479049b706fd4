"""Old requests of ended jobs are forgotten, so that a service that runs for years does not grow for years.

Jobs, checkpoints and usage are kept. A request goes when its job is over and it has not changed for so many days; its
result file goes with it. A few rows at a time, so that nobody waits long for the database.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Connection, delete, select

from drydock.service import schema as tables
from drydock.service.result_files import ResultFiles
from drydock.service.store import Store
from drydock.wire.status import JobStatus

DAY_S = 86_400.0
BATCH_ROWS = 1000

logger = logging.getLogger(__name__)


@asynccontextmanager
async def forgetting(store: Store, results: ResultFiles, days: float, *, every_s: float = DAY_S) -> AsyncIterator[None]:
    """Forgets what is older than `days` when the block begins and once a day during it."""

    async def forget_forever() -> None:
        while True:
            try:
                await forget_requests(store, results, time.time() - days * DAY_S)
            except Exception:
                logger.exception("old requests could not be removed; trying again later")
            await asyncio.sleep(every_s)

    task = asyncio.create_task(forget_forever(), name="retention")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def forget_requests(store: Store, results: ResultFiles, before: float) -> int:
    """Removes requests of ended jobs that last changed before that time; how many."""
    removed = 0
    while True:
        batch = await store.run(lambda connection: _remove(connection, before))
        files = [name for _, name in batch if name is not None]
        await asyncio.to_thread(results.remove, files)
        removed += len(batch)
        if len(batch) < BATCH_ROWS:
            break
    if removed:
        logger.info("removed %d requests of ended jobs that were older than the retention time", removed)
    return removed


def _remove(connection: Connection, before: float) -> list[tuple[str, str | None]]:
    requests, jobs = tables.requests, tables.jobs
    over = select(jobs.c.job_id).where(jobs.c.status.in_([status.value for status in JobStatus if status.terminal]))
    old = (
        select(requests.c.request_id, requests.c.result_file)
        .where(requests.c.updated_at < before, requests.c.job_id.in_(over))
        .limit(BATCH_ROWS)
    )
    found = [(row.request_id, row.result_file) for row in connection.execute(old)]
    connection.execute(delete(requests).where(requests.c.request_id.in_([request_id for request_id, _ in found])))
    return found

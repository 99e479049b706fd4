"""Jobs from creation to their end: one supervising task a job owns its workers and its status.

pending -> placing -> initializing -> running -> cancelled | terminated | failed. Whoever wants a job to end (a
cancel, a dead worker, an idle timeout, the service stopping) resolves its `ending`; only the supervisor acts on it:
it kills the workers, then writes the final status, so that a status that says "over" means that nothing of the job
runs any more. A job that was live when an earlier service died is found at the start and marked failed with that
reason.
"""

import asyncio
import logging
import time
import uuid
from pathlib import Path
from typing import Any

from drydock.errors import DrydockError
from drydock.service import schema as tables
from drydock.service.chunk_groups import ChunkGroups
from drydock.service.job_admission import refuse_unsupported, wanted_gpus, worker_threads
from drydock.service.job_view import job_view
from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal
from drydock.service.request_table import RequestTable
from drydock.service.schema import Row
from drydock.service.store import Store
from drydock.service.worker_group import OperationError, WorkerGroup, WorkerSpec
from drydock.wire.rest import JobCreate, sub_job_id
from drydock.wire.status import JobStatus, SubJobStatus, advance

logger = logging.getLogger(__name__)

IDLE_CHECK_S = 5.0


class Jobs:
    """All jobs of the service."""

    def __init__(self, store: Store, requests: RequestTable, state_dir: Path, chunk_bytes: int) -> None:
        self._store = store
        self._requests = requests
        self._state_dir = state_dir
        self._chunk_bytes = chunk_bytes
        self._live: dict[str, LiveJob] = {}
        self._supervisors: set[asyncio.Task[None]] = set()

    def directory(self, job_id: str) -> Path:
        """The job's folder: logs of its sub-jobs and its checkpoints."""
        return self._state_dir / "jobs" / job_id

    def log_dir(self, sub_job: str) -> Path:
        """Where the sub-job with this id logs."""
        job_id, _, tail = sub_job.partition(":")
        return self.directory(job_id) / tail.replace(":", "-")

    async def create(self, create: JobCreate, body: dict[str, Any]) -> Row:
        """Writes the job down and starts its supervisor; the new job's view. Raises Refusal."""
        refuse_unsupported(create)
        job_id = create.job_id or f"job-{uuid.uuid4().hex[:12]}"
        if await self._store.one(tables.jobs, job_id=job_id) or job_id in self._live:
            raise Refusal(409, f"job_id: a job {job_id!r} exists already; choose another id or leave it out")
        now = time.time()
        job = LiveJob(
            job_id,
            create,
            body,
            created_at=now,
            updated_at=now,
            ending=asyncio.get_running_loop().create_future(),
            chunks=ChunkGroups(self._chunk_bytes),
        )
        for spec in self._specs(job):
            job.sub_status[spec.sub_job_id] = SubJobStatus.PENDING
            job.workers[spec.sub_job_id] = WorkerGroup(spec)
        self._live[job_id] = job
        self._requests.open_job(job_id)
        try:
            await self._write(job)
        except BaseException:
            del self._live[job_id]
            raise
        task = asyncio.create_task(self._supervise(job), name=f"job {job_id}")
        self._supervisors.add(task)
        task.add_done_callback(self._supervisors.discard)
        return job_view(job.row(), job.sub_job_rows())

    async def require_running(self, job_id: str) -> LiveJob:
        """The job, which can take work now. Raises Refusal: 404 unknown, 409 still starting, 410 over."""
        job = self._live.get(job_id)
        if job is None:
            row = await self._row(job_id)
            raise Refusal(410, f"job {job_id} is {row['status']}: {row['reason']}")
        if job.ending.done():
            ending = job.ending.result()
            raise Refusal(410, f"job {job_id} is {ending.status}: {ending.reason}")
        if job.status is not JobStatus.RUNNING:
            raise Refusal(409, f"job {job_id} is {job.status}, not running yet: wait for it and try again")
        job.last_used = time.monotonic()
        return job

    async def require_known(self, job_id: str) -> None:
        """Raises Refusal 404 for an unknown job."""
        if job_id not in self._live:
            await self._row(job_id)

    async def view(self, job_id: str) -> Row:
        """The job as the API shows it. Raises Refusal 404."""
        job = self._live.get(job_id)
        if job is not None:
            return job_view(job.row(), job.sub_job_rows())
        row = await self._row(job_id)
        return job_view(row, await self._store.rows(tables.sub_jobs, job_id=job_id))

    async def views(self, statuses: set[str], comment: str | None) -> list[Row]:
        """Jobs with one of the statuses (all when empty) and exactly this comment (any when None), oldest first."""
        equal = {} if comment is None else {"comment": comment}
        rows = {row["job_id"]: row for row in await self._store.rows(tables.jobs, **equal)}
        rows |= {job_id: self._live[job_id].row() for job_id in rows if job_id in self._live}
        chosen = [row for row in rows.values() if not statuses or row["status"] in statuses]
        subs: dict[str, list[Row]] = {}
        for sub in await self._store.rows(tables.sub_jobs):
            subs.setdefault(sub["job_id"], []).append(sub)
        return [
            job_view(
                row,
                self._live[row["job_id"]].sub_job_rows()
                if row["job_id"] in self._live
                else subs.get(row["job_id"], []),
            )
            for row in sorted(chosen, key=lambda row: row["created_at"])
        ]

    async def cancel(self, job_id: str) -> Row:
        """Ends the job and waits until its processes are gone; nothing to do for one that is over."""
        job = self._live.get(job_id)
        if job is not None:
            job.end(JobStatus.CANCELLED, "cancelled by request")
            await job.finished.wait()
        return await self.view(job_id)

    def gpus(self) -> dict[str, int]:
        """GPUs asked for by jobs that run (`in_use`) and by those that are starting (`pending`)."""
        counts = {"in_use": 0, "pending": 0}
        for job in self._live.values():
            wanted = sum(wanted_gpus(config) for config in job.create.sub_job_configs)
            counts["in_use" if job.status is JobStatus.RUNNING else "pending"] += wanted
        return counts

    async def close(self) -> None:
        """Ends every live job because the service stops."""
        for job in self._live.values():
            queued = job.status is JobStatus.PENDING
            job.end(JobStatus.FAILED if queued else JobStatus.TERMINATED, "the service was stopped")
        if self._supervisors:
            await asyncio.wait(self._supervisors)

    async def _supervise(self, job: LiveJob) -> None:
        try:
            await self._until_ending(job)
        except DrydockError as error:
            job.end(JobStatus.FAILED, str(error))
        except Exception as error:
            logger.exception("job %s failed inside the service", job.job_id)
            job.end(JobStatus.FAILED, f"internal error: {error!r}")
        ending = await job.ending
        try:
            await asyncio.gather(*(worker.stop(f"the job ended: {ending.reason}") for worker in job.workers.values()))
            await self._move(job, ending.status, ending.reason)
        finally:
            self._requests.close_job(job.job_id)
            self._live.pop(job.job_id, None)
            job.finished.set()
        logger.info("job %s is %s: %s", job.job_id, ending.status, ending.reason)

    async def _until_ending(self, job: LiveJob) -> None:
        """Starts the job's workers and returns when its ending is known. Raises what kept them from starting."""
        await self._move(job, JobStatus.PLACING)
        await self._move(job, JobStatus.INITIALIZING)
        starting = asyncio.create_task(_start_workers(job), name=f"start {job.job_id}")
        limit_s = job.create.pending_timeout_seconds
        await asyncio.wait({starting, job.ending}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            job.end(JobStatus.FAILED, f"pending_timeout: not running after {limit_s} s")
        if job.ending.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        starting.result()
        await self._move(job, JobStatus.RUNNING)
        job.last_used = time.monotonic()
        for worker in job.workers.values():
            worker.lost.add_done_callback(lambda lost: job.end(JobStatus.FAILED, lost.result()))
        idle_s = job.create.idle_timeout_seconds
        while not job.ending.done():
            await asyncio.wait({job.ending}, timeout=IDLE_CHECK_S if idle_s else None)
            busy = any(worker.open_calls for worker in job.workers.values())
            if idle_s and not busy and time.monotonic() - job.last_used > idle_s:
                job.end(JobStatus.TERMINATED, f"idle_timeout: no call for {idle_s} s")

    async def _move(self, job: LiveJob, status: JobStatus, reason: str | None = None) -> None:
        job.status = advance(job.status, status)
        job.sub_status = {key: advance(old, SubJobStatus(status.value)) for key, old in job.sub_status.items()}
        job.reason = reason
        job.updated_at = time.time()
        await self._write(job)

    async def _write(self, job: LiveJob) -> None:
        await self._store.put(tables.sub_jobs, job.sub_job_rows())
        await self._store.put(tables.jobs, [job.row()])

    async def _row(self, job_id: str) -> Row:
        row = await self._store.one(tables.jobs, job_id=job_id)
        if row is None:
            raise Refusal(404, f"no job {job_id!r}")
        return row

    def _specs(self, job: LiveJob) -> list[WorkerSpec]:
        specs: list[WorkerSpec] = []
        counts: dict[str, int] = {}
        for config in job.create.sub_job_configs:
            index = counts.get(config.job_type, 0)
            counts[config.job_type] = index + 1
            name = sub_job_id(job.job_id, config.job_type, index)
            specs.append(
                WorkerSpec(
                    name, config.job_type, config.model_dump(mode="json"), self.log_dir(name), worker_threads(config)
                )
            )
        return specs


async def _start_workers(job: LiveJob) -> None:
    async def start(worker: WorkerGroup) -> None:
        try:
            await worker.start()
        except OperationError as error:
            raise _StartFailed(f"{worker.spec.sub_job_id} could not start: {error.message}") from error

    await asyncio.gather(*(start(worker) for worker in job.workers.values()))


class _StartFailed(DrydockError):
    """An engine refused its configuration; the text becomes the job's reason."""

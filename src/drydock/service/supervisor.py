"""One job's life: it waits for room, starts the workers, keeps them alive as far as asked, and ends it all.

pending -> placing -> initializing -> running -> cancelled | terminated | failed. Whoever wants the job to end (a
cancel, a dead worker, a timeout, the service stopping) resolves its `ending`; only the supervisor acts on it: it kills
the workers, gives the room back, then writes the final status, so that a status that says "over" means that nothing
of the job runs any more.

A sub-job whose configuration says `on_worker_loss = "restart"` gets a new process when its own dies, at most
`MOST_RESTARTS` times in a row without a finished operation in between. A trainer goes on from its latest resumable
checkpoint, a sampler with the weights that it last held. Calls that come meanwhile wait.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from drydock.errors import DrydockError, EngineError, WorkerLost
from drydock.service.live_job import LiveJob
from drydock.service.pool import Pool
from drydock.service.problems import Refusal
from drydock.service.standby import Standby
from drydock.service.worker_group import OperationError, WorkerGroup
from drydock.service.worker_process import AttachedProcess
from drydock.wire.status import JobStatus, SubJobStatus, advance

CHECK_S = 5.0
"""How often timeouts are looked at."""
MOST_RESTARTS = 5

logger = logging.getLogger(__name__)


class Supervisor:
    """Owner of one job's workers and status. `write` stores the job."""

    def __init__(
        self,
        job: LiveJob,
        pool: Pool,
        *,
        write: Callable[[LiveJob], Awaitable[None]],
        standby: Standby | None = None,
        check_s: float = CHECK_S,
    ) -> None:
        self._job = job
        self._pool = pool
        self._write = write
        self._standby = standby
        self._check_s = check_s

    async def run(self) -> None:
        """Supervises the job, new or found running, until it has ended."""
        job = self._job
        try:
            await self._until_ending()
        except (DrydockError, Refusal) as error:
            job.end(JobStatus.FAILED, str(error))
        except Exception as error:
            logger.exception("job %s failed inside the service", job.job_id)
            job.end(JobStatus.FAILED, f"internal error: {error!r}")
        ending = await job.ending
        await asyncio.gather(*(worker.stop(f"the job ended: {ending.reason}") for worker in job.workers.values()))
        self._pool.release(job.job_id)
        if job.started_at is not None:
            job.ended_at = time.time()
        await self._move(ending.status, ending.reason)
        logger.info("job %s is %s: %s", job.job_id, ending.status, ending.reason)

    async def _until_ending(self) -> None:
        """Starts the job's workers and returns when its ending is known. Raises what kept them from starting."""
        job = self._job
        if job.status is not JobStatus.RUNNING:
            await self._until_running()
        if job.ending.done():
            return
        self._prepare_standby()
        keepers = [asyncio.create_task(self._keep(name), name=f"keep {name}") for name in job.workers]
        try:
            await self._until_idle(keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _until_running(self) -> None:
        job = self._job
        limit_s = job.create.pending_timeout_seconds
        starting = asyncio.create_task(self._start(), name=f"start {job.job_id}")
        try:
            while not starting.done() and not job.ending.done():
                left_s = None if limit_s is None else max(0.0, job.created_at + limit_s - time.time())
                if left_s == 0.0:
                    job.end(JobStatus.FAILED, f"pending_timeout: not running after {limit_s} s")
                    break
                wait_s = None if left_s is None else min(left_s, self._check_s)
                await asyncio.wait({starting, job.ending}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not starting.done() or job.ending.done():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
        if not job.ending.done():
            starting.result()

    async def _start(self) -> None:
        job = self._job
        assert job.hardware is not None
        devices = await self._pool.acquire(job.job_id, job.hardware, sum(job.slots.values()))
        for name, slots in job.slots.items():
            job.devices[name], devices = devices[:slots], devices[slots:]
        job.started_at = time.time()
        await self._move(JobStatus.PLACING)
        await self._move(JobStatus.INITIALIZING)
        await asyncio.gather(*(self._start_worker(worker) for worker in job.workers.values()))
        for worker in job.of_type("training"):
            job.progress.take(worker.note.get("progress"))
            job.progress.first_steps = job.progress.global_steps
        await self._move(JobStatus.RUNNING)
        job.last_used = time.monotonic()
        for worker in job.workers.values():
            worker.open()

    def _prepare_standby(self) -> None:
        """Has a process made ready where a sub-job may need one."""
        job = self._job
        for name in job.workers:
            if self._standby is not None and job.restartable(name):
                self._standby.prepare(job.hardware, job.devices.get(name, ()))

    async def _start_worker(self, worker: WorkerGroup, standby: AttachedProcess | None = None) -> None:
        name = worker.spec.sub_job_id
        try:
            await worker.start(self._job.hardware, self._job.devices.get(name, ()), standby)
        except OperationError as error:
            raise StartFailed(f"{name} could not start: {error.message}") from error

    async def _until_idle(self, keepers: list[asyncio.Task[None]]) -> None:
        job = self._job
        idle_s = job.create.idle_timeout_seconds
        while not job.ending.done():
            timeout = self._check_s if idle_s else None
            done, _ = await asyncio.wait({job.ending, *keepers}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for keeper in [task for task in keepers if task in done]:
                keeper.result()
            if any(worker.open_calls for worker in job.workers.values()):
                job.last_used = time.monotonic()
            elif idle_s and time.monotonic() - job.last_used > idle_s:
                job.end(JobStatus.TERMINATED, f"idle_timeout: no call for {idle_s} s")

    async def _keep(self, name: str) -> None:
        """Starts what stands in for a process that died, as long as that helps; else ends the job."""
        job = self._job
        in_a_row = 0
        while True:
            worker = job.workers[name]
            if not worker.unstarted:
                reason = await asyncio.shield(worker.lost)
                in_a_row = 0 if worker.finished_operations else in_a_row
                if job.workers[name] is worker:
                    job.end(JobStatus.FAILED, reason)
                    return
                await worker.stop(reason)
                continue
            in_a_row += 1
            if in_a_row > MOST_RESTARTS:
                last = worker.predecessor_loss
                job.end(JobStatus.FAILED, f"{name} died {in_a_row} times without finishing an operation; last: {last}")
                return
            await self._replace(worker)

    async def _replace(self, worker: WorkerGroup) -> None:
        """Starts a new process in the state of the one that died; returns when it is open, or dead too."""
        job, name = self._job, worker.spec.sub_job_id
        job.restarts[name] = job.restarts.get(name, 0) + 1
        logger.warning("%s is started again (restart %d)", name, job.restarts[name])
        if job.sub_status[name] is SubJobStatus.RUNNING:
            job.sub_status[name] = advance(job.sub_status[name], SubJobStatus.INITIALIZING)
        await self._write(job)
        try:
            standby = await self._standby.take(job.hardware, job.devices.get(name, ())) if self._standby else None
            await self._start_worker(worker, standby)
            await self._restore(worker)
        except WorkerLost:
            return
        except OperationError as error:
            raise StartFailed(f"{name} could not go on after its process died: {error.message}") from error
        job.sub_status[name] = advance(job.sub_status[name], SubJobStatus.RUNNING)
        await self._write(job)
        worker.open()
        self._prepare_standby()

    async def _restore(self, worker: WorkerGroup) -> None:
        """Gives a new process the state of its predecessor, as far as it was kept."""
        job = self._job
        if worker.spec.job_type == "training":
            if job.progress.resume is not None:
                await worker.ask_unopened("load", path=job.progress.resume.path)
            return
        name = worker.spec.sub_job_id
        weights = job.held_weights.get(name)
        if weights is not None:
            held = (await worker.ask_unopened("load-weights", **weights)).header["result"]
            if held["fingerprint"] != weights["fingerprint"]:
                raise EngineError(f"{name} holds other weights after its restart than before")
        for adapter, folder in list(job.held_adapters.get(name, {}).items()):
            if folder is None:
                await worker.ask_unopened("drop-adapter", adapter=adapter)
            else:
                await worker.ask_unopened("load-adapter", adapter=adapter, path=folder)

    async def _move(self, status: JobStatus, reason: str | None = None) -> None:
        job = self._job
        job.status = advance(job.status, status)
        target = SubJobStatus(status.value)
        job.sub_status = {name: old if old is target else advance(old, target) for name, old in job.sub_status.items()}
        job.reason = reason
        job.updated_at = time.time()
        await self._write(job)


class StartFailed(DrydockError):
    """An engine refused its configuration; the text becomes the job's reason."""

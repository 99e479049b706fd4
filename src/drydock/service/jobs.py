"""All jobs of the service: made, found, listed, cancelled, and found again after a restart.

One supervising task a job (`Supervisor`) owns its workers and its status. At the start `recover` takes over what an
earlier API process left: a running job whose workers answer goes on as if nothing had happened; a worker that is gone
counts as lost; a job that was not running yet goes back to the queue; a worker process of no such job is killed.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drydock.amount import amount
from drydock.errors import WorkerLost
from drydock.service import schema as tables
from drydock.service.chunk_groups import ChunkGroups
from drydock.service.job_admission import refuse_unsupported, wanted_slots, worker_threads
from drydock.service.job_view import job_view
from drydock.service.live_job import LiveJob
from drydock.service.pool import Pool
from drydock.service.problems import Refusal
from drydock.service.progress import Progress
from drydock.service.request_table import RequestTable
from drydock.service.run_dir import kill_leftovers, remove_if_empty, run_dir
from drydock.service.schema import Row
from drydock.service.settings import ServiceSettings
from drydock.service.standby import Standby
from drydock.service.store import Store
from drydock.service.supervisor import CHECK_S, Supervisor
from drydock.service.usage import Placed
from drydock.service.worker_group import WorkerGroup
from drydock.service.worker_process import WorkerIdentity
from drydock.service.worker_spec import WorkerLimits, WorkerSpec
from drydock.wire.rest import JobCreate, sub_job_id
from drydock.wire.status import JobStatus, SubJobStatus, advance

logger = logging.getLogger(__name__)


class Jobs:
    """All jobs of the service. check_s: how often supervisors look at timeouts."""

    def __init__(
        self, store: Store, requests: RequestTable, settings: ServiceSettings, pool: Pool, *, check_s: float = CHECK_S
    ) -> None:
        self._store = store
        self._requests = requests
        self._state_dir = settings.state_dir
        self._chunk_bytes = settings.max_chunk_store_bytes
        self._pool = pool
        self._check_s = check_s
        self._limits = WorkerLimits.of(settings, run_dir(settings.state_dir))
        self._standby = Standby(self._limits)
        self._live: dict[str, LiveJob] = {}
        self._creating = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def directory(self, job_id: str) -> Path:
        """The job's folder: logs of its sub-jobs and its checkpoints."""
        return self._state_dir / "jobs" / job_id

    def log_dir(self, sub_job: str) -> Path:
        """Where the sub-job with this id logs."""
        job_id, _, tail = sub_job.partition(":")
        return self.directory(job_id) / tail.replace(":", "-")

    async def create(
        self,
        create: JobCreate,
        body: dict[str, Any],
        owner: str | None = None,
        owner_role: str | None = None,
        creation_key: str | None = None,
    ) -> Row:
        """Writes the job of `owner` down and starts its supervisor; the new job's view. Raises Refusal.

        creation_key: the same key and body give the job that the first call made.
        """
        async with self._creating:
            return await self._known_or_new(create, body, owner, owner_role, creation_key)

    async def _known_or_new(
        self,
        create: JobCreate,
        body: dict[str, Any],
        owner: str | None,
        owner_role: str | None,
        creation_key: str | None,
    ) -> Row:
        if creation_key is not None:
            known = await self._store.one(tables.jobs, owner=owner, creation_key=creation_key)
            if known is not None and known["body"] != body:
                raise Refusal(422, "Idempotency-Key: this key was already used to create a job with another body")
            if known is not None:
                return await self.view(known["job_id"])
        refuse_unsupported(create)
        hardware = self._pool.check(create.hardware, sum(map(wanted_slots, create.sub_job_configs)))
        job_id = create.job_id or f"job-{uuid.uuid4().hex[:12]}"
        if await self._store.one(tables.jobs, job_id=job_id) or job_id in self._live:
            raise Refusal(409, f"job_id: a job {job_id!r} exists already; choose another id or leave it out")
        now = time.time()
        whose = {"owner": owner, "owner_role": owner_role, "creation_key": creation_key}
        job = self._made(job_id, create, body, **whose, created_at=now, updated_at=now)
        job.hardware = hardware
        self._live[job_id] = job
        self._requests.open_job(job_id)
        try:
            await self.write(job)
        except BaseException:
            del self._live[job_id]
            self._requests.close_job(job_id)
            raise
        self.supervise(job)
        return self._view_of(job)

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

    def running(self) -> list[LiveJob]:
        """The jobs that can take work now, oldest first."""
        jobs = [job for job in self._live.values() if job.status is JobStatus.RUNNING and not job.ending.done()]
        return sorted(jobs, key=lambda job: job.created_at)

    def restart_points(self) -> dict[Path, str]:
        """Checkpoints from which trainers of live jobs go on when their process dies, and for each its job's id."""
        return {
            Path(point.path): job.job_id for job in self._live.values() if (point := job.restart_point()) is not None
        }

    def adapter_folders(self) -> dict[Path, str]:
        """Adapters that samplers of live jobs load once more when their process dies, and for each its job's id."""
        return {folder: job.job_id for job in self._live.values() for folder in job.adapter_folders()}

    async def require_known(self, job_id: str) -> None:
        """Raises Refusal 404 for an unknown job."""
        if job_id not in self._live:
            await self._row(job_id)

    async def owner(self, job_id: str) -> str | None:
        """Whose job it is, None for nobody's. Raises Refusal 404."""
        job = self._live.get(job_id)
        return job.owner if job is not None else (await self._row(job_id))["owner"]

    def placed(self) -> list[Placed]:
        """Every sub-job that holds room."""
        return [
            (job.job_id, name, job.hardware, slots)
            for job in self._live.values()
            if job.started_at is not None and job.ended_at is None and job.hardware is not None
            for name, slots in job.slots.items()
        ]

    def worker_rss(self) -> dict[str, int]:
        """Resident bytes of all workers, by job type, where known."""
        sums: dict[str, int] = {}
        for job in self._live.values():
            for worker in job.workers.values():
                sums[worker.spec.job_type] = sums.get(worker.spec.job_type, 0) + worker.resident_bytes
        return sums

    async def view(self, job_id: str) -> Row:
        """The job as the API shows it. Raises Refusal 404."""
        job = self._live.get(job_id)
        if job is not None:
            return self._view_of(job)
        row = await self._row(job_id)
        return job_view(row, await self._store.rows(tables.sub_jobs, job_id=job_id))

    async def views(self, statuses: set[str], **equal: str | None) -> list[Row]:
        """Jobs with one of the statuses (all when empty), oldest first.

        equal: exact values of comment, owner or name; None does not filter.
        """
        equal = {key: value for key, value in equal.items() if value is not None}
        rows = {row["job_id"]: row for row in await self._store.rows(tables.jobs, **equal)}
        rows |= {job_id: self._live[job_id].row() for job_id in rows if job_id in self._live}
        chosen = [row for row in rows.values() if not statuses or row["status"] in statuses]
        subs: dict[str, list[Row]] = {}
        for sub in await self._store.rows(tables.sub_jobs):
            subs.setdefault(sub["job_id"], []).append(sub)
        return [
            self._view_of(self._live[row["job_id"]])
            if row["job_id"] in self._live
            else job_view(row, subs.get(row["job_id"], []))
            for row in sorted(chosen, key=lambda row: row["created_at"])
        ]

    async def cancel(self, job_id: str, reason: str | None = None) -> Row:
        """Ends the job, for `reason` if there is one, and waits until its processes are gone."""
        job = self._live.get(job_id)
        if job is not None:
            job.end(JobStatus.CANCELLED, reason or "cancelled by request")
            await job.finished.wait()
        return await self.view(job_id)

    async def close(self) -> None:
        """Ends every live job because the service stops."""
        for job in self._live.values():
            queued = job.status is JobStatus.PENDING
            job.end(JobStatus.FAILED if queued else JobStatus.TERMINATED, "the service was stopped")
        if self._tasks:
            await asyncio.wait(self._tasks)
        await kill_leftovers(self._limits.run_dir, ())
        remove_if_empty(self._limits.run_dir)

    async def recover(self, in_flight: dict[str, list[Row]]) -> list[LiveJob]:
        """The jobs that an earlier API process left, to be supervised again once their requests are.

        in_flight: unfinished requests by job id.
        """
        over = {status.value for status in JobStatus if status.terminal}
        rows = [row for row in await self._store.rows(tables.jobs) if row["status"] not in over]
        jobs = [
            job
            for row in sorted(rows, key=lambda row: row["created_at"])
            if (job := await self._revived(row)) is not None
        ]
        await asyncio.gather(*(self._find_workers(job, in_flight.get(job.job_id, ())) for job in jobs))
        kept = {
            Path(w.identity.socket) for job in jobs for w in job.workers.values() if w.identity and not w.lost.done()
        }
        killed = await kill_leftovers(self._limits.run_dir, kept)
        if killed:
            logger.warning("killed worker processes that belong to no running job: %s", killed)
        return jobs

    def supervise(self, job: LiveJob) -> None:
        """Starts the job's supervisor."""
        supervisor = Supervisor(job, self._pool, write=self.write, standby=self._standby, check_s=self._check_s)
        task = asyncio.create_task(self._run(supervisor, job), name=f"job {job.job_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, supervisor: Supervisor, job: LiveJob) -> None:
        try:
            await supervisor.run()
        finally:
            self._requests.close_job(job.job_id)
            self._live.pop(job.job_id, None)
            for weights in job.held_weights.values():
                Path(weights["path"]).unlink(missing_ok=True)
            if not any(other.restartable(name) for other in self._live.values() for name in other.workers):
                await self._standby.drop()
            job.finished.set()

    def _made(self, job_id: str, create: JobCreate, body: dict[str, Any], **fields: Any) -> LiveJob:
        ending = asyncio.get_running_loop().create_future()

        def renew(name: str) -> WorkerGroup:
            return self._group(job, job.workers[name].spec)

        chunks = ChunkGroups(self._chunk_bytes)
        job = LiveJob(job_id, create, body, ending=ending, chunks=chunks, renew=renew, **fields)
        job.changed = lambda: self._write_soon(job)
        for config, spec in zip(create.sub_job_configs, self._specs(job), strict=True):
            job.sub_status[spec.sub_job_id] = SubJobStatus.PENDING
            job.slots[spec.sub_job_id] = wanted_slots(config)
            job.workers[spec.sub_job_id] = self._group(job, spec)
        return job

    async def _revived(self, row: Row) -> LiveJob | None:
        """A job from its row; None, and the row marked failed, when this version cannot read it."""
        try:
            create = JobCreate.model_validate(row["body"])
        except ValidationError as error:
            reason = (
                f"the service was restarted and cannot read this job any more: {amount(error.error_count(), 'error')}"
            )
            await self._store.put(tables.jobs, [{**row, "status": JobStatus.FAILED.value, "reason": reason}])
            return None
        same = ("owner", "owner_role", "creation_key", "created_at", "updated_at", "hardware", "started_at")
        job = self._made(row["job_id"], create, row["body"], **{key: row[key] for key in same})
        job.status = JobStatus(row["status"])
        job.hardware = job.hardware or self._pool.default_hardware
        floor: Row | None = None
        for sub in await self._store.rows(tables.sub_jobs, job_id=job.job_id):
            name, worker = sub["sub_job_id"], sub["worker"] or {}
            job.sub_status[name] = SubJobStatus(sub["status"])
            job.restarts[name] = sub["restarts"] or 0
            job.devices[name] = sub["devices"] or []
            job.rewound = worker.get("rewound") or job.rewound
            floor = worker.get("floor") or floor
            job.progress.first_steps = worker.get("first_steps") or job.progress.first_steps
            if worker.get("weights"):
                job.held_weights[name] = worker["weights"]
            if worker.get("adapters"):
                job.held_adapters[name] = worker["adapters"]
        first_steps = job.progress.first_steps
        job.progress = await self._store.run(lambda connection: Progress.from_store(connection, job.job_id, floor))
        job.progress.first_steps, job.floor, job.last_loss = first_steps, floor, job.progress.last_loss
        job.progress.global_steps = max(first_steps, job.progress.global_steps)
        self._live[job.job_id] = job
        await self._requests.reopen_job(job.job_id)
        return job

    async def _find_workers(self, job: LiveJob, in_flight: Collection[Row]) -> None:
        """Takes the job's workers over; without them a running job has lost workers, another goes back to the queue."""
        if job.status is not JobStatus.RUNNING:
            self._queue_again(job)
            return
        devices = [device for name in job.slots for device in job.devices.get(name, ())]
        self._pool.adopt(job.job_id, job.hardware or "", sum(job.slots.values()), devices)
        rows = await self._store.rows(tables.sub_jobs, job_id=job.job_id)
        identities = {row["sub_job_id"]: WorkerIdentity.from_row(row["worker"]) for row in rows}

        async def find(name: str, worker: WorkerGroup) -> None:
            identity = identities.get(name)
            try:
                if identity is None or job.sub_status[name] is not SubJobStatus.RUNNING:
                    raise WorkerLost("its process was not ready")
                await worker.adopt(identity)
            except WorkerLost as error:
                callers = [row["request_id"] for row in in_flight if _waits_for(row, worker.spec)]
                worker.gone(f"the service was restarted, and {name} was gone: {error}", callers)

        await asyncio.gather(*(find(name, worker) for name, worker in job.workers.items()))
        for worker in job.of_type("training"):
            job.progress.take(worker.note.get("progress"))

    def _queue_again(self, job: LiveJob) -> None:
        if job.status is not JobStatus.PENDING:
            job.status = advance(job.status, JobStatus.PENDING)
        job.sub_status = dict.fromkeys(job.sub_status, SubJobStatus.PENDING)
        job.started_at = None
        job.devices = {}

    def _view_of(self, job: LiveJob) -> Row:
        position = self._pool.position(job.job_id)
        waiting = {} if position is None else {"queue_position": position}
        return job_view(job.row(), job.sub_job_rows()) | waiting

    async def write(self, job: LiveJob) -> None:
        """Has the store know what the job is now."""
        await self._store.put(tables.sub_jobs, job.sub_job_rows())
        await self._store.put(tables.jobs, [job.row()])
        self._requests.changes.tell(job.job_id, job.status)

    def _write_soon(self, job: LiveJob) -> None:
        if job.job_id in self._live and not job.finished.is_set():
            task = asyncio.create_task(self.write(job), name=f"write {job.job_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _row(self, job_id: str) -> Row:
        row = await self._store.one(tables.jobs, job_id=job_id)
        if row is None:
            raise Refusal(404, f"no job {job_id!r}")
        return row

    def _group(self, job: LiveJob, spec: WorkerSpec) -> WorkerGroup:
        return WorkerGroup(spec, self._limits, partial(job.worker_lost, spec.sub_job_id))

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


def _waits_for(row: Row, spec: WorkerSpec) -> bool:
    """Whether `recovery` takes this unfinished request up at that worker, so that it is told of the worker's loss."""
    kind, given = row["kind"], row["arguments"]
    match spec.job_type:
        case "training" if kind in ("forward-backward", "step"):
            return True
        case "training" if kind in ("save", "load", "weight-sync"):
            return bool(given)
        case "sampling":
            return kind in ("generate", "generate-stream")
        case _:
            return kind == "forward" and bool(given) and given["sub_job_id"] == spec.sub_job_id

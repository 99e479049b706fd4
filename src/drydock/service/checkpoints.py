"""Checkpoints of a job: where they stand, how they are listed, saved, loaded, exported and deleted.

A checkpoint is a folder `jobs/<job>/checkpoints/<id>`, complete once it has its final name (the engine writes under a
temporary one), and a row in the store written after that. It outlives its job, and another job may load it or start
from it. A checkpoint that someone needs is not deleted: one that is being loaded, that a job which has not ended
started from or names as its model or adapter, or that its trainer or a sampler takes up when its process dies. A
checkpoint's folder goes out of reach (renamed) before its row goes, and is removed after that.

After a save the job's `checkpoint_retention` removes older checkpoints, none that is needed or that an export still
opens, and never the newest resumable one.
"""

import asyncio
import contextlib
import logging
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select

from drydock.engine.retention import StoredCheckpoint, removable_checkpoints
from drydock.engine.settings import TrainingConfig, parse_settings
from drydock.service import checkpoint_files
from drydock.service import schema as tables
from drydock.service.export_leases import drop_lease, leased, take_lease
from drydock.service.jobs import Jobs
from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.store import Store
from drydock.service.timestamps import iso
from drydock.wire.rest import SaveBody
from drydock.wire.status import JobStatus

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Checkpoints:
    """All checkpoints that the service has written."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs
        self._loading: Counter[Path] = Counter()

    def choose_id(self, job: LiveJob, body: SaveBody) -> str:
        """The new checkpoint's id, the caller's where it gave one. Raises Refusal 422 for a bad or taken one."""
        chosen = body.checkpoint_id or f"cp_{uuid.uuid4().hex}"
        if not _ID.fullmatch(chosen):
            raise Refusal(422, f"checkpoint_id: {chosen!r} may hold letters, digits, '.', '_' and '-' only")
        if self._path(job.job_id, chosen).exists():
            raise Refusal(422, f"checkpoint_id: job {job.job_id} has a checkpoint {chosen!r} already")
        return chosen

    async def save(
        self, job: LiveJob, checkpoint_id: str, checkpoint_type: str, merge: bool, record: RequestRecord
    ) -> Outcome:
        """Has the trainer write a checkpoint, then lists it. merge: with an adapter added into the whole weights."""
        job.begin_training(record)
        worker = job.training()
        path = self._path(job.job_id, checkpoint_id)
        record.arguments = {"checkpoint_id": checkpoint_id, "checkpoint_type": checkpoint_type, "merge": merge}
        reply = await record.ask(worker, "save", path=str(path), checkpoint_type=checkpoint_type, merge=merge)
        details: dict[str, Any] = reply.header["result"]
        global_steps = details.get("global_steps")
        row = {
            "job_id": job.job_id,
            "checkpoint_id": checkpoint_id,
            "checkpoint_type": checkpoint_type,
            "global_steps": global_steps,
            "avg_loss": job.last_loss,
            "created_at": time.time(),
            "path": str(path),
            "size_bytes": await asyncio.to_thread(checkpoint_files.size_of, path),
            "owner": await self._jobs.owner(job.job_id),
        }
        await self._store.put(tables.checkpoints, [row])
        result = {
            "global_steps": global_steps,
            "job_id": worker.spec.sub_job_id,
            "checkpoint_id": checkpoint_id,
            "checkpoint_type": checkpoint_type,
            "stage_path": f"{path}/",
            "checkpoint_path": str(path),
            "checkpoint_tag": f"global_step{global_steps}" if global_steps is not None else checkpoint_id,
            "version": 1.0,
        }
        job.trained("save", result)
        await self._apply_retention(job)
        return Outcome(result)

    async def find(
        self, job_id: str, checkpoint_id: str, *, where: str = "checkpoint_id", unknown_status: int = 422
    ) -> Path:
        """The folder of a checkpoint. Raises Refusal `unknown_status`, naming the field `where`, without such one."""
        row = await self._store.one(tables.checkpoints, job_id=job_id, checkpoint_id=checkpoint_id)
        if row is None or not Path(row["path"]).is_dir():
            raise Refusal(unknown_status, f"{where}: job {job_id} has no checkpoint {checkpoint_id!r}")
        return Path(row["path"])

    async def load(self, job: LiveJob, path: Path, record: RequestRecord) -> Outcome:
        """Has the trainer continue from a checkpoint."""
        record.arguments = {"path": str(path)}
        with self.kept(path):
            reply = await record.ask(job.training(), "load", path=str(path))
        job.trained("load", reply.header["result"])
        return Outcome(reply.header["result"])

    async def delete(self, job_id: str, checkpoint_id: str) -> None:
        """Removes a checkpoint for good. Raises Refusal: 404 for an unknown one, 409 for one in use."""
        path = await self.find(job_id, checkpoint_id, unknown_status=404)
        name = f"checkpoint {checkpoint_id} of job {job_id}"
        reason = (await self._needed()).get(path)
        if reason is not None:
            raise Refusal(409, f"{name} is {reason}")
        if self._loading[path]:
            raise Refusal(409, f"{name} is being loaded; delete it afterwards")
        gone = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        path.rename(gone)
        table = tables.checkpoints
        chosen = (table.c.job_id == job_id) & (table.c.checkpoint_id == checkpoint_id)
        await self._store.run(lambda connection: connection.execute(delete(table).where(chosen)))
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)
        drop_lease(path)

    async def exported_files(self, job_id: str, checkpoint_id: str, expires_at: float) -> dict[str, int]:
        """Names and sizes of a checkpoint's files, which retention then keeps until `expires_at`.

        Raises Refusal: 404 for an unknown checkpoint, 410 for a damaged one.
        """
        path = await self.find(job_id, checkpoint_id, unknown_status=404)
        take_lease(path, expires_at)
        return await asyncio.to_thread(checkpoint_files.listed, path)

    async def _apply_retention(self, job: LiveJob) -> None:
        """Removes what `checkpoint_retention` lets go; what cannot be removed stays until the next save."""
        config = job.training().spec.config["training_config"]
        policy = parse_settings(TrainingConfig, config, where="training_config").checkpoint_retention
        if policy is None:
            return
        rows = await self._store.rows(tables.checkpoints, job_id=job.job_id)
        stored = [
            StoredCheckpoint(row["checkpoint_id"], row["global_steps"] or 0, row["checkpoint_type"], row["created_at"])
            for row in rows
        ]
        named = await self._needed()
        needed = [row["checkpoint_id"] for row in rows if Path(row["path"]) in named or leased(Path(row["path"]))]
        for checkpoint_id in removable_checkpoints(
            stored, keep_last=policy.keep_last, keep_every=policy.keep_every_steps, needed=needed
        ):
            try:
                await self.delete(job.job_id, checkpoint_id)
                logger.info("job %s: checkpoint %s removed by checkpoint_retention", job.job_id, checkpoint_id)
            except (Refusal, OSError) as error:
                logger.warning("job %s: checkpoint %s stays for now: %s", job.job_id, checkpoint_id, error)

    async def listing(self, job_id: str) -> list[dict[str, Any]]:
        """The job's checkpoints, oldest first."""
        await self._jobs.require_known(job_id)
        rows = await self._store.rows(tables.checkpoints, job_id=job_id)
        return [
            {
                "checkpoint_id": row["checkpoint_id"],
                "checkpoint_type": row["checkpoint_type"],
                "global_steps": row["global_steps"],
                "avg_loss": row["avg_loss"],
                "created_at": iso(row["created_at"]),
                "size_bytes": row["size_bytes"],
                "stage_path": f"{row['path']}/",
            }
            for row in sorted(rows, key=lambda row: row["created_at"])
        ]

    @contextlib.contextmanager
    def kept(self, path: Path) -> Iterator[None]:
        """Keeps a checkpoint from being deleted; one that went before raises Refusal 422."""
        if not path.is_dir():
            raise Refusal(422, f"checkpoint_id: checkpoint {path.name!r} was deleted")
        self._loading[path] += 1
        try:
            yield
        finally:
            self._loading[path] -= 1

    async def _needed(self) -> dict[Path, str]:
        """Folders that jobs which have not ended need, and for each what it is to one of them."""
        over = [status.value for status in JobStatus if status.terminal]
        found: dict[Path, str] = {}
        for row in await self._store.run(lambda connection: _unfinished(connection, over)):
            job_id = row["job_id"]
            for config in row["body"].get("sub_job_configs") or ():
                inference = config.get("inference_config") or {}
                adapters = inference.get("policy_adapter"), *(inference.get("adapters") or {}).values()
                for named in (config.get("model_name"), *adapters):
                    found[Path(str(named))] = f"a model or an adapter of job {job_id}; delete it once that job is over"
                source = config.get("source_checkpoint_info") or {}
                if source:
                    path = self._path(str(source.get("source_job_id")), str(source.get("checkpoint_id")))
                    found[path] = f"what job {job_id} started from; delete it once that job is over"
        for path, job_id in self._jobs.adapter_folders().items():
            found[path] = f"an adapter that the samplers of job {job_id} load again when they die; drop it there first"
        for path, job_id in self._jobs.restart_points().items():
            found[path] = f"what the trainer of job {job_id} goes on from when its process dies; save another one first"
        return found

    def _path(self, job_id: str, checkpoint_id: str) -> Path:
        return self._jobs.directory(job_id) / "checkpoints" / checkpoint_id


def _unfinished(connection: Connection, over: list[str]) -> list[dict[str, Any]]:
    chosen = select(tables.jobs.c.job_id, tables.jobs.c.body).where(tables.jobs.c.status.not_in(over))
    return [dict(row._mapping) for row in connection.execute(chosen)]

"""Checkpoints of a job: where they stand, how they are listed, and the save and load requests.

A checkpoint is a folder `jobs/<job>/checkpoints/<id>`, complete once it has its final name (the engine writes under a
temporary one), and a row in the store written after that. It outlives its job, and another job may load it.
"""

import re
import time
import uuid
from pathlib import Path
from typing import Any

from drydock.service import schema as tables
from drydock.service.jobs import Jobs
from drydock.service.live_job import LiveJob
from drydock.service.problems import Refusal
from drydock.service.request_table import Outcome, RequestRecord
from drydock.service.store import Store
from drydock.service.timestamps import iso
from drydock.wire.rest import SaveBody

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Checkpoints:
    """All checkpoints that the service has written."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs

    async def choose_id(self, job: LiveJob, body: SaveBody) -> str:
        """The new checkpoint's id, the caller's where it gave one. Raises Refusal 422 for a bad or taken one."""
        chosen = body.checkpoint_id or f"cp_{uuid.uuid4().hex}"
        if not _ID.fullmatch(chosen):
            raise Refusal(422, f"checkpoint_id: {chosen!r} may hold letters, digits, '.', '_' and '-' only")
        if self._path(job.job_id, chosen).exists():
            raise Refusal(422, f"checkpoint_id: job {job.job_id} has a checkpoint {chosen!r} already")
        return chosen

    async def save(self, job: LiveJob, checkpoint_id: str, checkpoint_type: str, _: RequestRecord) -> Outcome:
        """Has the trainer write a checkpoint, then lists it."""
        worker = job.training()
        path = self._path(job.job_id, checkpoint_id)
        reply = await worker.call("save", path=str(path), checkpoint_type=checkpoint_type)
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
        }
        await self._store.put(tables.checkpoints, [row])
        return Outcome(
            {
                "global_steps": global_steps,
                "job_id": worker.spec.sub_job_id,
                "checkpoint_id": checkpoint_id,
                "checkpoint_type": checkpoint_type,
                "stage_path": f"{path}/",
                "checkpoint_path": str(path),
                "checkpoint_tag": f"global_step{global_steps}" if global_steps is not None else checkpoint_id,
                "version": 1.0,
            }
        )

    async def find(self, job_id: str, checkpoint_id: str) -> Path:
        """The folder of a checkpoint. Raises Refusal 422 when the job has no such one."""
        row = await self._store.one(tables.checkpoints, job_id=job_id, checkpoint_id=checkpoint_id)
        if row is None or not Path(row["path"]).is_dir():
            raise Refusal(422, f"checkpoint_id: job {job_id} has no checkpoint {checkpoint_id!r}")
        return Path(row["path"])

    async def load(self, job: LiveJob, path: Path, _: RequestRecord) -> Outcome:
        """Has the trainer continue from a checkpoint."""
        reply = await job.training().call("load", path=str(path))
        return Outcome(reply.header["result"])

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
                "stage_path": f"{row['path']}/",
            }
            for row in sorted(rows, key=lambda row: row["created_at"])
        ]

    def _path(self, job_id: str, checkpoint_id: str) -> Path:
        return self._jobs.directory(job_id) / "checkpoints" / checkpoint_id

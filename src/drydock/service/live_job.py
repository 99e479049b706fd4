"""A job that has not ended: its status, its workers, and how it is told to end.

`Jobs` makes it and moves it on; everyone else finds workers through it. It holds no store and no model.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from drydock.service.chunk_groups import ChunkGroups
from drydock.service.problems import Refusal
from drydock.service.schema import Row
from drydock.service.worker_group import WorkerGroup
from drydock.wire.rest import JobCreate
from drydock.wire.status import JobStatus, SubJobStatus


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job is to end."""

    status: JobStatus
    reason: str


@dataclass(eq=False)
class LiveJob:
    """A job whose supervisor runs."""

    job_id: str
    create: JobCreate
    body: dict[str, Any]
    created_at: float
    updated_at: float
    ending: asyncio.Future[Ending]
    chunks: ChunkGroups
    status: JobStatus = JobStatus.PENDING
    reason: str | None = None
    sub_status: dict[str, SubJobStatus] = field(default_factory=dict)
    workers: dict[str, WorkerGroup] = field(default_factory=dict)
    last_used: float = field(default_factory=time.monotonic)
    last_loss: float | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, status: JobStatus, reason: str) -> None:
        """Asks the supervisor to end the job; the first reason counts."""
        if not self.ending.done():
            self.ending.set_result(Ending(status, reason))

    def of_type(self, job_type: str) -> list[WorkerGroup]:
        """The workers of one job type, in sub-job order."""
        return [worker for worker in self.workers.values() if worker.spec.job_type == job_type]

    def training(self) -> WorkerGroup:
        """The training worker. Raises Refusal when the job has none."""
        found = self.of_type("training")
        if not found:
            raise Refusal(400, f"job {self.job_id} has no training sub-job")
        return found[0]

    def sampling(self) -> list[WorkerGroup]:
        """The sampling workers. Raises Refusal when the job has none."""
        found = self.of_type("sampling")
        if not found:
            raise Refusal(400, f"job {self.job_id} has no sampling sub-job")
        return found

    def row(self) -> Row:
        """The job's row in the store."""
        return {
            "job_id": self.job_id,
            "status": self.status.value,
            "reason": self.reason,
            "comment": self.create.comment,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "body": self.body,
        }

    def sub_job_rows(self) -> list[Row]:
        """The rows of its sub-jobs in the store."""
        configs = self.body["sub_job_configs"]
        return [
            {
                "sub_job_id": worker.spec.sub_job_id,
                "job_id": self.job_id,
                "position": position,
                "job_type": worker.spec.job_type,
                "status": self.sub_status[worker.spec.sub_job_id].value,
                "config": configs[position],
            }
            for position, worker in enumerate(self.workers.values())
        ]

"""A job that has not ended: its status, its workers, where its training stands, and how it is told to end.

`Jobs` makes it and a `Supervisor` moves it on; everyone else finds workers through it. It holds no store and no model.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drydock.errors import TrainingRewound
from drydock.service.chunk_groups import ChunkGroups
from drydock.service.problems import Refusal
from drydock.service.progress import Progress, ResumePoint, is_resume_point, resume_point
from drydock.service.request_record import RequestRecord
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
    """A job whose supervisor runs.

    slots: room that each sub-job asks for. devices: what each got. restarts: how often each was started again.
    held_weights: the last weight file that each sampler took, kept only where it may be started again.
    held_adapters: by sampler, what was loaded (name and folder) or dropped (name and None) since the job began.
    rewound: what a restart of the trainer lost and nobody has been told yet. floor: when it was put back to which step.
    changed: has the job written down soon. renew: makes a group for a sub-job, not started.
    """

    job_id: str
    create: JobCreate
    body: dict[str, Any]
    created_at: float
    updated_at: float
    ending: asyncio.Future[Ending]
    chunks: ChunkGroups
    owner: str | None = None
    owner_role: str | None = None
    creation_key: str | None = None
    hardware: str | None = None
    slots: dict[str, int] = field(default_factory=dict)
    devices: dict[str, list[int]] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    status: JobStatus = JobStatus.PENDING
    reason: str | None = None
    sub_status: dict[str, SubJobStatus] = field(default_factory=dict)
    workers: dict[str, WorkerGroup] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    held_weights: dict[str, dict[str, Any]] = field(default_factory=dict)
    held_adapters: dict[str, dict[str, str | None]] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    rewound: dict[str, Any] | None = None
    floor: dict[str, Any] | None = None
    changed: Callable[[], None] = lambda: None
    renew: Callable[[str], WorkerGroup] = field(kw_only=True)
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

    def restartable(self, sub_job_id: str) -> bool:
        """Whether the sub-job is started again when its process dies (`on_worker_loss`)."""
        config = self.workers[sub_job_id].spec.config
        block = config.get("training_config") or config.get("inference_config") or {}
        return block.get("on_worker_loss") == "restart"

    def restart_point(self) -> ResumePoint | None:
        """Where the trainer goes on when its process dies; None where it does not, or begins anew."""
        restarts = any(self.restartable(worker.spec.sub_job_id) for worker in self.of_type("training"))
        return self.progress.resume if restarts else None

    def adapter_changed(self, sub_job_id: str, adapter: str, folder: str | None) -> None:
        """Takes note of what a sampler holds under an adapter's name; folder: None where it holds nothing any more."""
        held = self.held_adapters.setdefault(sub_job_id, {})
        configured = self.workers[sub_job_id].spec.config["inference_config"].get("adapters") or {}
        held[adapter] = folder
        if folder is None and adapter not in configured:
            del held[adapter]

    def adapter_folders(self) -> set[Path]:
        """Folders of adapters that a sampler would load once more if it was started again."""
        kept = [held for name, held in self.held_adapters.items() if self.restartable(name)]
        return {Path(folder) for held in kept for folder in held.values() if folder is not None}

    def begin_training(self, record: RequestRecord) -> None:
        """To be called first by every request that builds on the trainer's state.

        Raises TrainingRewound, once, when a restart has lost some of that state.
        """
        if self.rewound is None or record.resumed:
            return
        notice, self.rewound = self.rewound, None
        record.settled.append(self.changed)
        raise TrainingRewound(notice["text"])

    def trained(self, kind: str, result: dict[str, Any]) -> None:
        """Takes note of what a finished save or load means for a later restart."""
        if is_resume_point(kind, result):
            self.progress.resume = resume_point(result)
        if kind == "load" and self.rewound is not None:
            self.rewound = None
            self.changed()

    def worker_lost(self, name: str, reason: str, in_flight: Collection[str]) -> str:
        """Puts a new group in the place of one whose process died, if that is asked for.

        Returns what callers are told whose requests died with it. What a trainer's death loses is told to them; when
        there is none, the next request that builds on the trainer's state is told.
        """
        if not self.restartable(name) or self.status is not JobStatus.RUNNING or self.ending.done():
            return reason
        worker = self.workers[name]
        if worker.spec.job_type == "training":
            self.progress.take(worker.note.get("progress"))
            lost = self.progress.loss_of_process()
            text = f"restarted from {self.progress.origin()}; {lost or 'nothing that was finished before is lost'}"
            if lost is not None and not in_flight:
                self.rewound = {"text": text, "at": time.time()}
            self.progress.rewind()
            self.floor = {"at": time.time(), "global_steps": self.progress.global_steps}
            told = f"{reason}; the training sub-job is {text}"
        else:
            told = f"{reason}; the {worker.spec.job_type} sub-job is restarted with the weights it held: send it again"
        self.workers[name] = self.renew(name)
        self.workers[name].predecessor_loss = told
        return told

    def row(self) -> Row:
        """The job's row in the store."""
        name = self.body.get("name")
        return {
            "job_id": self.job_id,
            "status": self.status.value,
            "reason": self.reason,
            "comment": self.create.comment,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "body": self.body,
            "name": name if isinstance(name, str) else None,
            "owner": self.owner,
            "owner_role": self.owner_role,
            "hardware": self.hardware,
            "slots": sum(self.slots.values()),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "creation_key": self.creation_key,
        }

    def sub_job_rows(self) -> list[Row]:
        """The rows of its sub-jobs in the store."""
        configs = self.body["sub_job_configs"]
        return [
            {
                "sub_job_id": name,
                "job_id": self.job_id,
                "position": position,
                "job_type": worker.spec.job_type,
                "status": self.sub_status[name].value,
                "config": configs[position],
                "slots": self.slots.get(name),
                "devices": self.devices.get(name),
                "worker": self._worker_row(worker),
                "restarts": self.restarts.get(name, 0),
            }
            for position, (name, worker) in enumerate(self.workers.items())
        ]

    def _worker_row(self, worker: WorkerGroup) -> Row:
        row: Row = worker.identity.row() if worker.identity is not None else {}
        if worker.spec.job_type == "training":
            kept = {"rewound": self.rewound, "floor": self.floor, "first_steps": self.progress.first_steps}
            return {**row, **kept}
        name = worker.spec.sub_job_id
        return {**row, "weights": self.held_weights.get(name), "adapters": self.held_adapters.get(name)}

"""Answers of the training API as models, for its description and its readers; the service writes them as plain JSON."""

from typing import Any

from pydantic import Field

from drydock.wire.rest import Job, OpenModel


class Problem(OpenModel):
    """A refused call. `message` says what is wrong with which field; `detail` is the same or a structured form."""

    message: str
    detail: Any = None


class JobList(OpenModel):
    """Jobs, oldest first."""

    jobs: list[Job]


class RequestStarted(OpenModel):
    """A data-plane request has begun; its result comes by polling."""

    request_id: str
    job_id: str


class StreamStarted(RequestStarted):
    """As RequestStarted; `count` results will come."""

    count: int


class ChunkCached(OpenModel):
    """A chunk that is not the last one was kept."""

    chunk_cached: bool


class CheckpointEntry(OpenModel):
    """One checkpoint of a job."""

    checkpoint_id: str
    checkpoint_type: str
    global_steps: int | None
    avg_loss: float | None
    created_at: str
    size_bytes: int | None
    stage_path: str


class CheckpointList(OpenModel):
    """A job's checkpoints, oldest first."""

    checkpoints: list[CheckpointEntry]


class ExportedFile(OpenModel):
    """One file of an exported checkpoint; `url` opens it without a token."""

    filename: str
    url: str
    size_bytes: int


class CheckpointExport(OpenModel):
    """All files of a checkpoint, to be fetched before `expires_at`."""

    checkpoint_id: str
    files: list[ExportedFile]
    expires_at: str


class CheckpointDeleted(OpenModel):
    """A checkpoint is gone."""

    deleted: bool
    job_id: str
    checkpoint_id: str


class OperationAnswer(OpenModel):
    """What an operation that is answered at once says; the keys depend on it (tail-logs: entries, next_cursor, eof)."""


class ExperimentRun(OpenModel):
    """Under which names a job's artifacts are filed."""

    experiment_name: str = Field(min_length=1)
    experiment_run_name: str = Field(min_length=1)


class Identity(OpenModel):
    """Who the caller is."""

    user: str
    role: str


class UsageReport(OpenModel):
    """Metered quantities and, where prices are set, their cost."""

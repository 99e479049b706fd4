"""Statuses of jobs, sub-jobs and requests, and the moves between them that are legal.

One table a kind, literal, so that a reader sees the whole life cycle at once; `advance` is the only way to move and
raises on anything the table lacks. `parse` reads the spellings other servers use ("JOB_STATE_RUNNING", "succeeded",
"canceled"); a spelling nobody knows counts as still in flight, since treating it as an end would abandon live work.
"""

from collections.abc import Mapping
from enum import StrEnum

from drydock.errors import IllegalTransition


class JobStatus(StrEnum):
    """Life of a job: queued, given hardware, loading models, serving; then one of three ends.

    A job that was not serving yet when the service restarted goes back to the queue.
    """

    PENDING = "pending"
    PLACING = "placing"
    INITIALIZING = "initializing"
    RUNNING = "running"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        """True when no further change is legal."""
        return not JOB_NEXT[self]

    @classmethod
    def parse(cls, raw: object) -> "JobStatus":
        """Read any server's spelling; unknown spellings give PENDING ("not usable yet, not over")."""
        text = str(raw).lower().removeprefix("job_state_")
        return cls(text) if text in _JOB_VALUES else _JOB_SYNONYMS.get(text, cls.PENDING)


class SubJobStatus(StrEnum):
    """Life of one sub-job; the values and moves of its job's, and back to loading when its process is replaced."""

    PENDING = "pending"
    PLACING = "placing"
    INITIALIZING = "initializing"
    RUNNING = "running"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        """True when no further change is legal."""
        return not SUB_JOB_NEXT[self]

    @classmethod
    def parse(cls, raw: object) -> "SubJobStatus":
        """As `JobStatus.parse`."""
        return cls(JobStatus.parse(raw).value)


class RequestStatus(StrEnum):
    """Life of one data-plane request."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """True when no further change is legal."""
        return not REQUEST_NEXT[self]

    @classmethod
    def parse(cls, raw: object) -> "RequestStatus":
        """Read any server's spelling; unknown spellings ("streaming", ...) give RUNNING."""
        text = str(raw).lower().removeprefix("request_state_")
        return cls(text) if text in _REQUEST_VALUES else _REQUEST_SYNONYMS.get(text, cls.RUNNING)


JOB_NEXT: Mapping[JobStatus, frozenset[JobStatus]] = {
    JobStatus.PENDING: frozenset({JobStatus.PLACING, JobStatus.CANCELLED, JobStatus.FAILED}),
    JobStatus.PLACING: frozenset(
        {
            JobStatus.INITIALIZING,
            JobStatus.PENDING,
            JobStatus.CANCELLED,
            JobStatus.TERMINATED,
            JobStatus.FAILED,
        },
    ),
    JobStatus.INITIALIZING: frozenset(
        {JobStatus.RUNNING, JobStatus.PENDING, JobStatus.CANCELLED, JobStatus.TERMINATED, JobStatus.FAILED},
    ),
    JobStatus.RUNNING: frozenset({JobStatus.CANCELLED, JobStatus.TERMINATED, JobStatus.FAILED}),
    JobStatus.CANCELLED: frozenset(),
    JobStatus.TERMINATED: frozenset(),
    JobStatus.FAILED: frozenset(),
}

SUB_JOB_NEXT: Mapping[SubJobStatus, frozenset[SubJobStatus]] = {
    SubJobStatus(current.value): frozenset(SubJobStatus(status.value) for status in allowed)
    | (frozenset({SubJobStatus.INITIALIZING}) if current is JobStatus.RUNNING else frozenset())
    for current, allowed in JOB_NEXT.items()
}

REQUEST_NEXT: Mapping[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.PENDING: frozenset({RequestStatus.RUNNING, RequestStatus.FAILED, RequestStatus.CANCELLED}),
    RequestStatus.RUNNING: frozenset({RequestStatus.COMPLETED, RequestStatus.FAILED, RequestStatus.CANCELLED}),
    RequestStatus.COMPLETED: frozenset(),
    RequestStatus.FAILED: frozenset(),
    RequestStatus.CANCELLED: frozenset(),
}

_JOB_VALUES = frozenset(JobStatus)
_JOB_SYNONYMS = {
    "canceled": JobStatus.CANCELLED,
    "cancelling": JobStatus.CANCELLED,
    "canceling": JobStatus.CANCELLED,
    "done": JobStatus.TERMINATED,
}
_REQUEST_VALUES = frozenset(RequestStatus)
_REQUEST_SYNONYMS = {
    "done": RequestStatus.COMPLETED,
    "succeeded": RequestStatus.COMPLETED,
    "canceled": RequestStatus.CANCELLED,
}


def advance[S: (JobStatus, SubJobStatus, RequestStatus)](current: S, new: S) -> S:
    """Return `new` when the move is legal.

    Raises IllegalTransition otherwise, also for a move to the present status.
    """
    if isinstance(current, JobStatus):
        legal = new in JOB_NEXT[current]
    elif isinstance(current, SubJobStatus):
        legal = new in SUB_JOB_NEXT[current]
    else:
        legal = new in REQUEST_NEXT[current]
    if not legal or type(new) is not type(current):
        raise IllegalTransition(f"{type(current).__name__} cannot go from {current} to {new}")
    return new

"""Where a job's training stands, and what goes with its process when that dies.

The process says after each operation how many steps it has taken and how many forward-backward calls wait for one;
saving and loading say from where it could go on. After a restart of the API process both are read from the requests
that finished, and the first is then corrected by what the process itself says.
"""

from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Connection, select

from drydock.service import schema as tables
from drydock.service.schema import Row

_KINDS = ("forward-backward", "step", "load", "save")


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint that holds the state that training had at `global_steps`."""

    path: str
    name: str
    global_steps: int


@dataclass(slots=True)
class Progress:
    """Optimizer steps taken (`global_steps`), those it began with (`first_steps`), and calls since the last step."""

    global_steps: int = 0
    accumulated: int = 0
    first_steps: int = 0
    resume: ResumePoint | None = None
    last_loss: float | None = None

    def take(self, said: dict[str, Any] | None) -> None:
        """Takes over what the process said about itself."""
        if said is not None:
            self.global_steps, self.accumulated = said["global_steps"], said["accumulated"]

    @property
    def resume_steps(self) -> int:
        """The step at which a new process goes on."""
        return self.resume.global_steps if self.resume else self.first_steps

    def loss_of_process(self) -> str | None:
        """What a new process lacks, None when it lacks nothing."""
        steps = range(self.resume_steps + 1, self.global_steps + 1)
        parts: list[str] = []
        if len(steps) == 1:
            parts.append(f"step {steps[0]}")
        elif steps:
            parts.append(f"steps {steps[0]}..{steps[-1]}")
        if self.accumulated:
            parts.append(f"{self.accumulated} accumulated forward-backward call{'s' if self.accumulated > 1 else ''}")
        if not parts:
            return None
        single = len(parts) == 1 and len(steps) <= 1 and self.accumulated <= 1
        return f"{' and '.join(parts)} {'is' if single else 'are'} lost"

    def origin(self) -> str:
        """From what a new process goes on."""
        if self.resume is None:
            return f"the model it began with at step {self.first_steps}"
        return f"checkpoint {self.resume.name} at step {self.resume.global_steps}"

    def rewind(self) -> None:
        """The new process stands where it goes on from."""
        self.global_steps, self.accumulated = self.resume_steps, 0

    @classmethod
    def from_store(cls, connection: Connection, job_id: str, floor: Row | None = None) -> Self:
        """As the job's finished requests tell, newest first; inside a transaction.

        floor: {"at", "global_steps"} of the last time that training was put back; what is older counts no more.
        """
        table = tables.requests
        rows = connection.execute(
            select(table.c.kind, table.c.status, table.c.result, table.c.error_type, table.c.updated_at)
            .where(table.c.job_id == job_id, table.c.kind.in_(_KINDS), table.c.status.in_(("completed", "failed")))
            .order_by(table.c.updated_at.desc())
        )
        found = cls()
        counting, steps = True, None
        for kind, status, result, error_type, updated_at in rows:
            result = result or {}
            if floor is not None and updated_at <= floor["at"]:
                counting = False
                steps = floor["global_steps"] if steps is None else steps
            if status == "failed":
                counting = counting and error_type != "EngineError"
            elif kind == "forward-backward":
                found.accumulated += counting
                found.last_loss = result.get("avg_loss") if found.last_loss is None else found.last_loss
            else:
                steps = result.get("global_steps") if steps is None else steps
                counting = counting and kind == "save"
                if found.resume is None and is_resume_point(kind, result):
                    found.resume = resume_point(result)
            if found.resume is not None and steps is not None and not counting:
                break
        found.global_steps = steps or 0
        return found


def is_resume_point(kind: str, result: dict[str, Any]) -> bool:
    """Whether training could go on from what this request wrote or read."""
    return kind == "load" or (kind == "save" and result.get("checkpoint_type") == "resumable")


def resume_point(result: dict[str, Any]) -> ResumePoint:
    """The checkpoint that a finished save or load tells of."""
    path = str(result.get("checkpoint_path") or result["path"])
    return ResumePoint(path, path.rstrip("/").rpartition("/")[2], int(result["global_steps"]))

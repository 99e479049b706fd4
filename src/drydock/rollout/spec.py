"""Which rollout to run: data only, so that a plan of a step can be printed, compared and retried."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from uuid import uuid4

_AGAIN = "-again"


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One attempt at one task.

    task: the task's name, unique in its task set and fit for a file name.
    repetition: number of the attempt within its group, from 0.
    attempt: 0 at first, counting the rollouts that replace one that broke.
    rollout_id: unique in the process; key of the chat proxy's session and name of the Harbor trial.
    """

    task: str
    task_path: Path
    step: int
    split: Literal["train", "eval"]
    repetition: int
    attempt: int = 0
    rollout_id: str = field(default="")

    def __post_init__(self) -> None:
        if not self.rollout_id:
            object.__setattr__(self, "rollout_id", new_rollout_id(self))

    def fresh(self) -> "RolloutSpec":
        """The same attempt at the task made once more, under an id of its own."""
        first = self.rollout_id.removesuffix(f"{_AGAIN}{self.attempt}")
        return replace(self, attempt=self.attempt + 1, rollout_id=f"{first}{_AGAIN}{self.attempt + 1}")


def new_rollout_id(spec: RolloutSpec) -> str:
    """A readable id with enough randomness to be unique over runs on one machine."""
    readable = "".join(character if character.isalnum() else "-" for character in spec.task.lower())[:24].strip("-")
    return f"{readable or 'task'}-s{spec.step}-r{spec.repetition}-{uuid4().hex[:8]}"

"""What a rollout leaves on disk: one JSON file with its outcome, reward and every token.

`<task>_<repetition>.json` for a rollout that can be trained or at least ended by the policy's own doing;
`<task>_<repetition>.error` with the same content for one that broke, `<task>_<repetition>.try<attempt>.error` for one
that was replaced by a fresh one. Files are written whole or not at all.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from drydock.atomic import replace_file
from drydock.errors import Blame
from drydock.proxy.record import RolloutRecord
from drydock.rollout.evidence import Evidence
from drydock.rollout.outcome import Outcome
from drydock.rollout.spec import RolloutSpec


class Trajectory(BaseModel):
    """One rollout, complete.

    reward: None when masked, never a stand-in 0. rewards: every number the verifier left, None for NaN and infinity.
    submitted: the agent declared the task done. advantage: filled in once the group is complete.
    error, blame, evidence: why an outcome other than `graded` came about, who has to act, and what that rests on.
    attempt: 0 for the first rollout of this repetition, counting those that replaced it. replaced: another one did.
    timings: seconds, by phase (`sandbox_s`, `agent_setup_s`, `agent_s`, `verifier_s`, `total_s`).
    """

    model_config = ConfigDict(extra="forbid")

    rollout_id: str
    task: str
    task_path: str
    repetition: int
    attempt: int = 0
    step: int
    split: Literal["train", "eval"]
    outcome: Outcome
    blame: Blame | None = None
    error: str | None = None
    evidence: Evidence = Field(default_factory=Evidence)
    replaced: bool = False
    reward: float | None = None
    rewards: dict[str, float | None] = Field(default_factory=dict)
    submitted: bool = False
    turns: int = 0
    advantage: float | None = None
    record: RolloutRecord
    timings: dict[str, float] = Field(default_factory=dict)

    @classmethod
    def of(cls, spec: RolloutSpec, **rest: Any) -> "Trajectory":
        """The trajectory of the attempt `spec`; `rest` are the fields that say what came of it."""
        made = {
            "rollout_id": spec.rollout_id,
            "task": spec.task,
            "task_path": str(spec.task_path),
            "repetition": spec.repetition,
            "attempt": spec.attempt,
            "step": spec.step,
            "split": spec.split,
        }
        return cls(**made, **rest)

    @property
    def masked(self) -> bool:
        """Whether the rollout has no reward and so takes no part in training, nor in its group's baseline."""
        return self.reward is None

    def write(self, directory: Path) -> Path:
        """Write the file into `directory` (made if missing) and return its path; a second write replaces the first."""
        path = path_for(directory, self.task, self.repetition, failed=self.outcome.is_failure)
        if self.replaced:
            path = path.with_name(f"{path.stem}.try{self.attempt}.error")
        with replace_file(path, durable=False) as temporary:
            temporary.write_text(self.model_dump_json(), encoding="utf-8")
        if self.replaced:
            return path
        path_for(directory, self.task, self.repetition, failed=not self.outcome.is_failure).unlink(missing_ok=True)
        return path

    @classmethod
    def read(cls, path: Path) -> "Trajectory":
        return cls.model_validate_json(path.read_bytes())


def path_for(directory: Path, task: str, repetition: int, *, failed: bool) -> Path:
    """Where the trajectory of attempt `repetition` at `task` belongs."""
    safe = "".join(character if character.isalnum() or character in "-_.~" else "-" for character in task)
    return directory / f"{safe}_{repetition}{'.error' if failed else '.json'}"

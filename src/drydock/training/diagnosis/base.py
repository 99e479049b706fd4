"""What a check is: it looks at a finished step, with the steps before it, and names what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drydock.errors import Blame
from drydock.rollout.trajectory import Trajectory
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a check saw.

    cause: one sentence with the figures that it rests on. blame: who has to act. remedy: what to do.
    rollouts, metrics: the evidence; a few rollouts that show it, names in metrics.jsonl.
    about: what it is about, where it can be about several things (a task, say); another one is a new finding.
    """

    cause: str
    blame: Blame
    remedy: str
    rollouts: tuple[Trajectory, ...] = ()
    metrics: tuple[str, ...] = ()
    about: str = ""


class Check(Protocol):
    """Looks at a step; must not fail whatever the step holds, and says nothing where it cannot know."""

    def __call__(self, facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
        """What is wrong with the step, None when nothing is.

        steps: all steps of the run so far in order, the present one last.
        """
        ...


EXAMPLES = 3
"""Rollouts that a symptom shows at most."""


def examples(rollouts: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """A few of `rollouts`."""
    return tuple(rollouts[:EXAMPLES])

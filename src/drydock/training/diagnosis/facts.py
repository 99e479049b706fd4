"""What a step's checks are told, and what is kept of a step for the checks of later ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drydock.rollout.trajectory import Trajectory
from drydock.training.causes import broke


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One finished training step.

    metrics: as they are written to metrics.jsonl. trajectories: of the step, one for each of its rollouts, also those
    of groups without signal. allowed_versions: the policy versions that its turns may be of, rising; the last one is
    that with which the step's update began, in synchronous training it is the only one.
    """

    step: int
    metrics: Mapping[str, Any]
    trajectories: Sequence[Trajectory]
    allowed_versions: Sequence[int]

    @property
    def graded(self) -> list[Trajectory]:
        """The rollouts that have a reward."""
        return [one for one in self.trajectories if not one.masked]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group of a step: the rewards that were given, and how many rollouts broke."""

    task: str
    rewards: tuple[float, ...]
    broken: int

    @property
    def has_signal(self) -> bool:
        return len(set(self.rewards)) > 1


@dataclass(frozen=True, slots=True)
class StepSummary:
    """A step as later steps remember it: a few dozen bytes a rollout."""

    step: int
    metrics: Mapping[str, Any]
    groups: tuple[GroupSummary, ...]

    @property
    def rewards(self) -> list[float]:
        """All rewards of the step."""
        return [reward for group in self.groups for reward in group.rewards]


def summary_of(facts: StepFacts) -> StepSummary:
    """What is kept of a step."""
    rewards: dict[str, list[float]] = {}
    broken: dict[str, int] = {}
    for one in facts.trajectories:
        given = rewards.setdefault(one.task, [])
        if one.reward is not None:
            given.append(one.reward)
        broken[one.task] = broken.get(one.task, 0) + broke(one)
    groups = tuple(GroupSummary(task, tuple(given), broken[task]) for task, given in rewards.items())
    return StepSummary(facts.step, dict(facts.metrics), groups)


def measured(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric's value; None where there is none, or NaN, which is how a service that does not measure it reads."""
    value = metrics.get(name)
    if not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def last_measured(steps: Sequence[StepSummary], name: str, count: int) -> list[float] | None:
    """The metric in the last `count` steps that have it, in order; None when there are fewer."""
    values = [value for one in steps if (value := measured(one.metrics, name)) is not None]
    return values[-count:] if len(values) >= count else None

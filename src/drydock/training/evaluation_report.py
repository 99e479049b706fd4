"""What `drydock eval` reports: the numbers of an evaluation as plain data, for programs and for the tables."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from drydock.rollout.trajectory import Trajectory
from drydock.training.evaluation import rewards_by_task, samples_per_task
from drydock.training.evaluation_statistics import (
    CONFIDENCE,
    RESAMPLES,
    SEED,
    confidence_interval,
    ks_up_to,
    mean_pass_at_k,
    mean_reward,
)

_PLAIN = ConfigDict(extra="forbid", frozen=True)


class TaskScore(BaseModel):
    """One task. reward: mean over its graded rollouts, None without any. passed: rollouts with a reward above 0.

    turns, tokens: means over all its rollouts; tokens are those sampled, None where an endpoint did not count them.
    """

    model_config = _PLAIN

    task: str
    reward: float | None
    rollouts: int
    graded: int
    masked: int
    passed: int
    turns: float
    tokens: float | None


class OutcomeCount(BaseModel):
    """How many rollouts ended so, and who has to act."""

    model_config = _PLAIN

    outcome: str
    blame: str | None
    rollouts: int
    masked: int


class PassAtK(BaseModel):
    """Mean over the `tasks` with at least k graded rollouts; None where there is none."""

    model_config = _PLAIN

    k: int
    value: float | None
    tasks: int


class Interval(BaseModel):
    """Of the mean reward: how it was computed, and its bounds."""

    model_config = _PLAIN

    low: float
    high: float
    confidence: float = CONFIDENCE
    method: str = "percentile bootstrap over tasks"
    resamples: int = RESAMPLES
    seed: int = SEED


class EvaluationReport(BaseModel):
    """subject: what was evaluated. sampling: with what settings. policy_versions: optimizer steps that the sampler said
    its weights had had; empty for an endpoint. trainable: whether the trajectories hold token ids. replaced: rollouts
    that broke and that fresh ones took over from, counted nowhere else. sampled_tokens: None where not counted.
    """

    model_config = _PLAIN

    subject: dict[str, Any]
    sampling: dict[str, Any]
    policy_versions: list[int]
    trainable: bool
    mean_reward: float | None
    interval: Interval | None
    pass_at: list[PassAtK]
    rollouts: int
    graded: int
    masked: int
    replaced: int
    sampled_tokens: int | None
    seconds: float
    outcomes: list[OutcomeCount]
    tasks: list[TaskScore]
    run_folder: str


def evaluation_report(
    trajectories: Sequence[Trajectory],
    *,
    subject: dict[str, Any],
    sampling: dict[str, Any],
    replaced: int,
    seconds: float,
    run_folder: str,
) -> EvaluationReport:
    """The report of an evaluation whose rollouts are all over."""
    groups = list(rewards_by_task(trajectories).values())
    bounds = confidence_interval(groups)
    tokens = [trajectory.record.sampled_tokens for trajectory in trajectories]
    counted = [count for count in tokens if count is not None]
    versions = {turn.policy_version for trajectory in trajectories for turn in trajectory.record.turns}
    return EvaluationReport(
        subject=subject,
        sampling=sampling,
        policy_versions=sorted(version for version in versions if version is not None),
        trainable=all(trajectory.record.endpoint is None for trajectory in trajectories),
        mean_reward=mean_reward(groups),
        interval=Interval(low=bounds[0], high=bounds[1]) if bounds else None,
        pass_at=[_pass_at(groups, k) for k in ks_up_to(samples_per_task(trajectories))],
        rollouts=len(trajectories),
        graded=sum(map(len, groups)),
        masked=sum(trajectory.masked for trajectory in trajectories),
        replaced=replaced,
        sampled_tokens=sum(counted) if len(counted) == len(tokens) else None,
        seconds=round(seconds, 3),
        outcomes=_outcomes(trajectories),
        tasks=_tasks(trajectories),
        run_folder=run_folder,
    )


def _pass_at(groups: Sequence[Sequence[float]], k: int) -> PassAtK:
    value, tasks = mean_pass_at_k(groups, k)
    return PassAtK(k=k, value=value, tasks=tasks)


def _outcomes(trajectories: Sequence[Trajectory]) -> list[OutcomeCount]:
    ways = Counter((one.outcome.value, one.blame.value if one.blame else None, one.masked) for one in trajectories)
    kinds = Counter((outcome, blame) for outcome, blame, _ in ways.elements())
    return [
        OutcomeCount(outcome=outcome, blame=blame, rollouts=count, masked=ways[outcome, blame, True])
        for (outcome, blame), count in kinds.most_common()
    ]


def _tasks(trajectories: Sequence[Trajectory]) -> list[TaskScore]:
    by_task: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task, []).append(trajectory)
    return [_score(task, rollouts) for task, rollouts in by_task.items()]


def _score(task: str, rollouts: Sequence[Trajectory]) -> TaskScore:
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    tokens = [count for rollout in rollouts if (count := rollout.record.sampled_tokens) is not None]
    return TaskScore(
        task=task,
        reward=statistics.fmean(rewards) if rewards else None,
        rollouts=len(rollouts),
        graded=len(rewards),
        masked=len(rollouts) - len(rewards),
        passed=sum(reward > 0 for reward in rewards),
        turns=statistics.fmean(rollout.turns for rollout in rollouts),
        tokens=statistics.fmean(tokens) if len(tokens) == len(rollouts) else None,
    )

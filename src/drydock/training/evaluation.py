"""An evaluation: rollouts of held-out tasks, none of them trained. Here, its line in metrics.jsonl."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from drydock.rollout.trajectory import Trajectory
from drydock.training.evaluation_statistics import confidence_interval, ks_up_to, mean_pass_at_k, mean_reward


def rewards_by_task(trajectories: Sequence[Trajectory]) -> dict[str, list[float]]:
    """Rewards of the graded rollouts of each task, in the order in which the tasks come; [] for one without any."""
    groups: dict[str, list[float]] = {}
    for trajectory in trajectories:
        group = groups.setdefault(trajectory.task, [])
        if trajectory.reward is not None:
            group.append(trajectory.reward)
    return groups


def samples_per_task(trajectories: Sequence[Trajectory]) -> int:
    """Rollouts that a task has, graded or not; of the task that has most."""
    return max(Counter(trajectory.task for trajectory in trajectories).values(), default=1)


def evaluation_metrics(trajectories: Sequence[Trajectory], seconds: float) -> dict[str, Any]:
    """Mean score of the graded rollouts with its confidence interval, pass@k, and how the rollouts ended.

    Masked rollouts are counted, not scored 0. What cannot be told is None: the score with none graded, the interval
    with fewer than two tasks graded, pass@k where no task has k graded rollouts.
    """
    groups = list(rewards_by_task(trajectories).values())
    low, high = confidence_interval(groups) or (None, None)
    outcomes = Counter(trajectory.outcome.value for trajectory in trajectories)
    return {
        "eval/all/avg_score": mean_reward(groups),
        "eval/all/ci_low": low,
        "eval/all/ci_high": high,
        **{f"eval/all/pass_at_{k}": mean_pass_at_k(groups, k)[0] for k in ks_up_to(samples_per_task(trajectories))},
        "eval/all/rollouts": len(trajectories),
        "eval/all/masked": sum(trajectory.masked for trajectory in trajectories),
        **{f"eval/all/outcome/{outcome}": count for outcome, count in sorted(outcomes.items())},
        "timing/eval": seconds,
    }

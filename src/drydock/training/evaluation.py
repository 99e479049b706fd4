"""An evaluation: rollouts of held-out tasks, none of them trained."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from drydock.rollout.trajectory import Trajectory


def evaluation_metrics(trajectories: Sequence[Trajectory], seconds: float) -> dict[str, Any]:
    """Mean score of the graded rollouts and pass@k over tasks (any of the task's k rollouts above 0).

    Masked rollouts are counted, not scored 0. With none graded the score is None.
    """
    groups: dict[str, list[float]] = {}
    for trajectory in trajectories:
        if trajectory.reward is not None:
            groups.setdefault(trajectory.task, []).append(trajectory.reward)
    rewards = [reward for group in groups.values() for reward in group]
    samples = max(Counter(trajectory.task for trajectory in trajectories).values(), default=1)
    return {
        "eval/all/avg_score": statistics.fmean(rewards) if rewards else None,
        f"eval/all/pass_at_{samples}": statistics.fmean(max(group) > 0 for group in groups.values())
        if groups
        else None,
        "eval/all/rollouts": len(trajectories),
        "eval/all/masked": len(trajectories) - len(rewards),
        "timing/eval": seconds,
    }

"""Advantages of a group's rollouts, computed per rollout before trajectories are cut into samples."""

import statistics
from collections.abc import Sequence

STD_EPSILON = 1e-6


def group_advantages(rewards: Sequence[float | None], *, normalize_by_std: bool) -> list[float | None]:
    """Reward minus the mean of the group's graded rollouts (GRPO, arXiv 2402.03300, section 4.1.2).

    `normalize_by_std` also divides by their unbiased standard deviation, as GRPO does and Dr.GRPO (arXiv 2503.20783)
    does not. A masked rollout (None) neither gets an advantage nor moves the baseline. A group with fewer than two
    graded rollouts carries no signal and yields None throughout.
    """
    graded = [reward for reward in rewards if reward is not None]
    if len(graded) < 2:
        return [None] * len(rewards)
    mean = statistics.fmean(graded)
    scale = statistics.stdev(graded) + STD_EPSILON if normalize_by_std else 1.0
    return [None if reward is None else (reward - mean) / scale for reward in rewards]

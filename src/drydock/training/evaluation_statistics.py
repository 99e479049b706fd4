"""The numbers of an evaluation, as pure functions of the rewards of each task's graded rollouts.

A task is a cluster: its rollouts are alike, so uncertainty is about which tasks were drawn. The confidence interval
therefore resamples whole tasks, and with one task there is none.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 0
_CHUNK = 1_000

Groups = Sequence[Sequence[float]]
"""Rewards of the graded rollouts, task by task; a task without any is an empty sequence."""


def mean_reward(groups: Groups) -> float | None:
    """Mean over all graded rollouts; None without any."""
    rewards = [reward for group in groups for reward in group]
    return sum(rewards) / len(rewards) if rewards else None


def confidence_interval(
    groups: Groups, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """Percentile bootstrap of `mean_reward`, with tasks drawn with replacement (Efron and Tibshirani 1993, ch. 13).

    Each resample is as many tasks as have a graded rollout, and its statistic the mean over their graded rollouts. The
    same rewards and seed give the same interval. None with fewer than two such tasks. Where all rewards are equal the
    interval has no width: a bootstrap knows nothing of what was not seen.
    """
    graded = [group for group in groups if group]
    if len(graded) < 2:
        return None
    sums = np.array([sum(group) for group in graded])
    counts = np.array([len(group) for group in graded])
    generator = np.random.default_rng(seed)
    equal = np.full(len(graded), 1 / len(graded))
    means = []
    for start in range(0, resamples, _CHUNK):
        drawn = generator.multinomial(len(graded), equal, size=min(_CHUNK, resamples - start))
        means.append((drawn @ sums) / (drawn @ counts))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def pass_at_k(rollouts: int, passed: int, k: int) -> float:
    """Chance that at least one of k rollouts drawn from `rollouts`, of which `passed` passed, is one that passed.

    Unbiased: 1 - C(n-c, k) / C(n, k) (arXiv 2107.03374, eq. 1). Raises ValueError unless passed <= rollouts >= k >= 1.
    """
    if not (0 <= passed <= rollouts and 1 <= k <= rollouts):
        raise ValueError(f"pass@{k} of {passed} passed rollouts among {rollouts} is not defined")
    return 1 - comb(rollouts - passed, k) / comb(rollouts, k)


def ks_up_to(samples: int) -> list[int]:
    """1, 2, 4, … and `samples` itself."""
    return sorted({*(1 << power for power in range(samples.bit_length())), samples})


def mean_pass_at_k(groups: Groups, k: int) -> tuple[float | None, int]:
    """Mean of `pass_at_k` over the tasks with at least k graded rollouts (None without any), and how many those are.

    A rollout passes with a reward above 0.
    """
    enough = [group for group in groups if len(group) >= k]
    if not enough:
        return None, 0
    chances = [pass_at_k(len(group), sum(reward > 0 for reward in group), k) for group in enough]
    return sum(chances) / len(chances), len(enough)

"""The reward curve of a run, read from its metrics: reward a step, means of ten steps, evaluations."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from drydock.report.metrics import series

WINDOW = 10


@dataclass(frozen=True, slots=True)
class RewardCurve:
    """rewards: (step, mean raw reward of its graded rollouts); evaluations: (step, mean score), step 0 = before."""

    rewards: tuple[tuple[int, float], ...]
    evaluations: tuple[tuple[int, float], ...]

    @classmethod
    def from_metrics(cls, records: Sequence[dict[str, Any]]) -> Self:
        """The curve that metrics.jsonl tells."""
        return cls(series(records, "reward/avg_raw_reward"), series(records, "eval/all/avg_score"))

    def windows(self) -> list[tuple[int, int, float]]:
        """(first step, last step, mean reward) of each ten steps in a row; the last window may be shorter."""
        blocks = [self.rewards[start : start + WINDOW] for start in range(0, len(self.rewards), WINDOW)]
        return [(block[0][0], block[-1][0], statistics.fmean(reward for _, reward in block)) for block in blocks]

    def mean_of_first(self, count: int) -> float:
        """Mean reward of the first `count` steps."""
        return statistics.fmean(reward for _, reward in self.rewards[:count])

    def mean_of_last(self, count: int) -> float:
        """Mean reward of the last `count` steps."""
        return statistics.fmean(reward for _, reward in self.rewards[-count:])

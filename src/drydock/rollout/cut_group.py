"""Which groups a step did not wait for (oversampling, quorum), told from what is on disk of them."""

from collections.abc import Sequence
from typing import Protocol

from drydock.rollout.outcome import Outcome


class Ended(Protocol):
    """A rollout that is over, from its whole file or from the beginning of it. outcome: a value of Outcome."""

    @property
    def outcome(self) -> str: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def advantage(self) -> float | None: ...


def was_cut_off(group: Sequence[Ended]) -> bool:
    """Whether the rollouts of a task in one step, which is over, were left out of its training.

    One of them was cancelled, or they were graded and got no advantage, which takes two rewards.
    """
    if any(one.outcome == Outcome.CANCELLED for one in group):
        return True
    graded = [one for one in group if one.reward is not None]
    return len(graded) > 1 and all(one.advantage is None for one in graded)

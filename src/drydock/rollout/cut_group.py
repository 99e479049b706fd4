"""Which groups a step did not wait for (oversampling, quorum), told from what is on disk of them."""

from collections.abc import Sequence

from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory


def was_cut_off(group: Sequence[Trajectory]) -> bool:
    """Whether the rollouts of a task in one step, which is over, were left out of its training.

    One of them was cancelled, or they were graded and got no advantage, which takes two rewards.
    """
    if any(one.outcome is Outcome.CANCELLED for one in group):
        return True
    graded = [one for one in group if not one.masked]
    return len(graded) > 1 and all(one.advantage is None for one in graded)

"""Which rollouts that broke are run again, and how many of them.

Only a rollout without a reward is replaced, and only when a fresh one may fare better: when the machine, the service or
the harness is to blame, or the task although its other rollouts of the batch were graded (a verifier that fails now and
then). What the policy did itself is never replaced: to sample until something is submitted would change what is
trained. The budget is of a batch, so that a batch in which everything breaks costs a bounded number of sandboxes; each
rollout is replaced a limited number of times, with pauses that grow, since what broke it may need a moment to come
back.
"""

from dataclasses import dataclass, field

from drydock.errors import Blame
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0

_MAY_PASS = frozenset({Blame.INFRASTRUCTURE, Blame.HARNESS})


@dataclass(slots=True)
class Replacements:
    """The decisions of one batch of rollouts.

    budget: fresh rollouts that may still be run. per_rollout: how often one and the same may be replaced.
    replaced: the rollouts that were, in the order in which they ended.
    """

    budget: int
    per_rollout: int = 2
    replaced: list[Trajectory] = field(default_factory=list)
    _graded_tasks: set[str] = field(default_factory=set)

    def take(self, trajectory: Trajectory) -> bool:
        """Note a rollout that is over; whether it is to be run again, for which the budget is then charged."""
        if not trajectory.masked:
            self._graded_tasks.add(trajectory.task)
            return False
        if self.budget < 1 or trajectory.attempt >= self.per_rollout or not self._may_pass(trajectory):
            return False
        self.budget -= 1
        trajectory.replaced = True
        self.replaced.append(trajectory)
        return True

    def pause_s(self, attempt: int) -> float:
        """Seconds to wait before the fresh rollout that follows attempt number `attempt` (from 0)."""
        return min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)

    def _may_pass(self, trajectory: Trajectory) -> bool:
        if trajectory.outcome is Outcome.CANCELLED:
            return False
        return trajectory.blame in _MAY_PASS or (
            trajectory.blame is Blame.TASK and trajectory.task in self._graded_tasks
        )

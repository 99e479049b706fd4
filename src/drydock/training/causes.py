"""Why rollouts have no reward, in a few words for people."""

from collections import Counter
from collections.abc import Sequence

from drydock.errors import Blame
from drydock.rollout.trajectory import Trajectory


def broke(trajectory: Trajectory) -> bool:
    """Whether a rollout failed by something else than the policy's doing or the user's."""
    return trajectory.outcome.is_failure and trajectory.blame not in (Blame.MODEL, Blame.USER)


def dominant_cause(trajectories: Sequence[Trajectory]) -> str:
    """The most frequent outcome, how often it came, who has to act, and one of its error messages."""
    outcome, count = Counter(trajectory.outcome for trajectory in trajectories).most_common(1)[0]
    alike = [one for one in trajectories if one.outcome is outcome]
    example = next((one.error for one in alike if one.error), None)
    blame = Counter(one.blame for one in alike).most_common(1)[0][0]
    blamed = f", blame: {blame.value}" if blame is not None else ""
    return f"{outcome.value} ({count} of {len(trajectories)}{blamed})" + (f", e.g. {example}" if example else "")

"""Which step's policy a turn was sampled by, and how far behind training it is.

A policy version counts optimizer updates; a step may make none, one or several. Staleness is counted in steps: a
rollout for step s, sampled by the policy after step p, is s - 1 - p steps stale; 0 is on-policy.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from drydock.errors import JobFailed
from drydock.rollout.trajectory import Trajectory


@dataclass(slots=True)
class PolicyVersions:
    """versions[i]: the policy version after step `first_step + i`; never falling."""

    first_step: int = 0
    versions: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def at(cls, step: int, version: int) -> "PolicyVersions":
        """Of a run that goes on after `step`, with the policy `version`."""
        return cls(step, [version])

    @property
    def latest(self) -> int:
        """The version after the last step."""
        return self.versions[-1]

    def reached(self, step: int, version: int) -> None:
        """The policy after `step`, which follows the last one that was noted."""
        expected = self.first_step + len(self.versions)
        if step != expected or version < self.versions[-1]:
            raise ValueError(f"step {step} with version {version} after step {expected - 1} ({self.versions[-1]})")
        self.versions.append(version)

    def staleness(self, trajectories: Sequence[Trajectory], step: int, allowed: int) -> list[int]:
        """The staleness in steps of each turn of `trajectories`, which are about to train `step`.

        Raises JobFailed when a turn was sampled by a version that is none of this run's, or is staler than allowed. A
        service that reports no version cannot be checked; such turns are left out.
        """
        return [
            self._of_turn(trajectory.rollout_id, turn.index, turn.policy_version, step, allowed)
            for trajectory in trajectories
            for turn in trajectory.record.turns
            if turn.policy_version is not None
        ]

    def _of_turn(self, rollout: str, turn: int, version: int, step: int, allowed: int) -> int:
        place = bisect_right(self.versions, version) - 1
        said = f"turn {turn} of rollout {rollout} was sampled by policy version {version}"
        if place < 0 or self.versions[place] != version:
            raise JobFailed(f"{said}, which is none of this run's: is another client training this job?")
        stale = step - 1 - (self.first_step + place)
        if stale > allowed:
            expected = self.versions[max(0, len(self.versions) - 1 - allowed)]
            raise JobFailed(
                f"{said}, expected {expected} or later for step {step} "
                f"(trainer.max_staleness_steps is {allowed}): did the sampler miss a weight sync?"
            )
        return max(0, stale)

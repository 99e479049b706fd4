"""Which step's policy a turn was sampled by, and how far behind training it is.

A policy version counts optimizer updates; a step may make none, one or several. Staleness is counted in steps: a
rollout for step s, sampled by the policy after step p, is s - 1 - p steps stale; 0 is on-policy.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    def step(self) -> int:
        """The last step that was noted."""
        return self.first_step + len(self.versions) - 1

    @property
    def latest(self) -> int:
        """The version after the last step."""
        return self.versions[-1]

    def reached(self, step: int, version: int) -> None:
        """The policy after `step`, which follows the last one that was noted."""
        if step != self.step + 1 or version < self.latest:
            raise ValueError(f"step {step} with version {version} after step {self.step} ({self.latest})")
        self.versions.append(version)

    def allowed(self, step: int, max_staleness: int) -> tuple[int, ...]:
        """The versions that may have sampled the rollouts of `step`, rising; the last one is the policy it trains."""
        newest = step - 1 - self.first_step
        return tuple(dict.fromkeys(self.versions[max(0, newest - max_staleness) : newest + 1]))

    def staleness(self, trajectories: Sequence[Trajectory], step: int) -> list[int]:
        """The staleness in steps of each turn of `trajectories`, which are about to train `step`.

        Turns of a version that is none of this run's are left out, and those of which the service reports none.
        """
        versions = [turn.policy_version for one in trajectories for turn in one.record.turns]
        places = [(bisect_right(self.versions, one) - 1, one) for one in versions if one is not None]
        known = [place for place, version in places if place >= 0 and self.versions[place] == version]
        return [max(0, step - 1 - (self.first_step + place)) for place in known]

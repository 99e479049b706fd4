"""From the numbers that a verifier left to the one reward that is trained, or to what is wrong with them.

There is never a stand-in: a reward that is missing, is no finite number or lies outside of the stated range makes the
rollout one without a reward, it does not become 0. Only a value outside of the range can be moved into it, by setting.
"""

import math
from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator


class RewardRule(BaseModel):
    """How a reward is made of what is in `reward.txt` (one number, named `reward`) or `reward.json`.

    key: which of the numbers is the reward. weights: when not empty, the reward is instead the sum of these numbers,
    each times its weight, not normalised; all of them must be there.
    lowest, highest: the range of the reward, ends included; None where it has none.
    out_of_range: a reward outside of it is refused (`mask`) or moved to its nearer end (`clip`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(default="reward", min_length=1)
    weights: dict[str, float] = Field(default_factory=dict)
    lowest: float | None = Field(default=None, allow_inf_nan=False)
    highest: float | None = Field(default=None, allow_inf_nan=False)
    out_of_range: Literal["mask", "clip"] = "mask"

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if self.lowest is not None and self.highest is not None and self.lowest >= self.highest:
            raise ValueError(f"lowest ({self.lowest:g}) must be less than highest ({self.highest:g})")
        if not all(math.isfinite(weight) for weight in self.weights.values()):
            raise ValueError("every weight must be a finite number")
        if self.weights and not any(self.weights.values()):
            raise ValueError("all weights are 0, so every reward would be 0")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers that a verifier has to leave."""
        return tuple(self.weights) or (self.key,)


def read_reward(rewards: Mapping[str, float] | None, rule: RewardRule) -> tuple[float | None, str | None]:
    """The reward by `rule`, or what is wrong with what the verifier left; exactly one of the two is None."""
    if not rewards:
        return None, "the verifier left no reward"
    absent = [name for name in rule.names if name not in rewards]
    if absent:
        names = ", ".join(map(repr, absent))
        return None, f"the verifier left no reward named {names} (it left: {', '.join(sorted(rewards))})"
    for name in rule.names:
        if not math.isfinite(rewards[name]):
            return None, f"the verifier's reward {name!r} is {rewards[name]}"
    weights = rule.weights or {rule.key: 1.0}
    return _in_range(math.fsum(weight * float(rewards[name]) for name, weight in weights.items()), rule)


def _in_range(value: float, rule: RewardRule) -> tuple[float | None, str | None]:
    """Advantages are single precision: beyond its largest number a reward would be infinite in the loss."""
    lowest = -math.inf if rule.lowest is None else rule.lowest
    highest = math.inf if rule.highest is None else rule.highest
    if rule.out_of_range == "clip":
        value = min(max(value, lowest), highest)
    elif not lowest <= value <= highest:
        return None, f"the reward is {value:g}, outside of the range from {lowest:g} to {highest:g}"
    if abs(value) > float(np.finfo(np.float32).max):
        return None, f"the reward is {value:g}, too large to be trained"
    return value, None

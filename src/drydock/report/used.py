"""What a run used, as its training service metered it: in all, a training step, a rollout.

Sums of the `usage/` metrics, so up to the last step or evaluation; warm start, evaluations and earlier starts of a
resumed run are in the whole and in the mean of a rollout.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNITS = {
    "gpu_seconds": "GPU s",
    "cpu_slot_seconds": "CPU slot s",
    "prompt_tokens": "prompt tokens",
    "sampled_tokens": "sampled tokens",
    "trained_tokens": "trained tokens",
    "storage_gib_hours": "GiB h of checkpoints",
    "cost": "cost",
}
_PREFIX = "usage/"


def usage_sums(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Meter to amount, over all records; empty where the service did not meter."""
    sums: dict[str, float] = {}
    for record in records:
        for key, amount in record.items():
            if key.startswith(_PREFIX) and amount is not None:
                name = key.removeprefix(_PREFIX)
                sums[name] = sums.get(name, 0.0) + amount
    return {name: sums[name] for name in UNITS if name in sums}


def rollouts_in(record: Mapping[str, Any]) -> int:
    """Rollouts of a step or evaluation; replaced ones are not among them."""
    if "eval/all/rollouts" in record:
        return int(record["eval/all/rollouts"] or 0)
    return int((record.get("rollouts/graded") or 0) + (record.get("rollouts/masked") or 0))


@dataclass(slots=True)
class Used:
    """Sums over the records that were added; a run's records can be added as they come.

    whole, in_steps: meter to amount, over all records and over those of training steps. rollouts: of all records.
    """

    whole: dict[str, float] = field(default_factory=dict)
    in_steps: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    rollouts: int = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Count one record in."""
        amounts = usage_sums([record])
        _add(self.whole, amounts)
        self.rollouts += rollouts_in(record)
        if "policy/updates" in record:
            self.steps += 1
            _add(self.in_steps, amounts)

    @property
    def a_step(self) -> dict[str, float]:
        """Mean of a training step."""
        return _divided(self.in_steps, self.steps) if self.steps else {}

    @property
    def a_rollout(self) -> dict[str, float]:
        """Mean of a rollout, whatever was used for."""
        return _divided(self.whole, self.rollouts) if self.rollouts else {}

    def __str__(self) -> str:
        """A sentence; empty where the service did not meter."""
        if not self.whole:
            return ""
        parts = [shown(self.whole)]
        parts += [
            f"{what}: {shown(mean)}" for what, mean in (("a step", self.a_step), ("a rollout", self.a_rollout)) if mean
        ]
        return "; ".join(parts)


def used_by(records: Iterable[Mapping[str, Any]]) -> str:
    """What all the records tell, as a sentence; empty where the service did not meter."""
    used = Used()
    for record in records:
        used.add(record)
    return str(used)


def shown(amounts: Mapping[str, float]) -> str:
    """Amounts with their units, joined by commas, in the order of UNITS."""
    return ", ".join(f"{_number(amounts[name])} {unit}" for name, unit in UNITS.items() if name in amounts)


def _add(sums: dict[str, float], amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0.0) + amount


def _divided(amounts: Mapping[str, float], by: int) -> dict[str, float]:
    return {name: amounts[name] / by for name in UNITS if name in amounts}


def _number(amount: float) -> str:
    """Whole from 100 on, three digits below."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"

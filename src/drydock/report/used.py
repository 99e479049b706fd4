"""What a run used, as its training service metered it: in all, a training step, a rollout.

Sums of the `usage/` metrics, so up to the last step or evaluation; warm start, evaluations and earlier starts of a
resumed run are in the whole and in the mean of a rollout.
"""

from collections.abc import Mapping, Sequence
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


def used_by(records: Sequence[Mapping[str, Any]]) -> str:
    """A sentence; empty where the service did not meter."""
    whole = usage_sums(records)
    if not whole:
        return ""
    steps = [record for record in records if "policy/updates" in record]
    rollouts = sum(map(rollouts_in, records))
    parts = [shown(whole)]
    if steps:
        parts.append(f"a step: {shown(_divided(usage_sums(steps), len(steps)))}")
    if rollouts:
        parts.append(f"a rollout: {shown(_divided(whole, rollouts))}")
    return "; ".join(parts)


def shown(amounts: Mapping[str, float]) -> str:
    """Amounts with their units, joined by commas."""
    return ", ".join(f"{_number(amount)} {UNITS[name]}" for name, amount in amounts.items())


def _divided(amounts: Mapping[str, float], by: int) -> dict[str, float]:
    return {name: amount / by for name, amount in amounts.items()}


def _number(amount: float) -> str:
    """Whole from 100 on, three digits below."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"

"""Which checkpoints may go: a pure function over what there is, so that the rule can be tested without a disk.

Kept are the newest `keep_last`, those at every `keep_every`-th step, the newest resumable one (a run that loses it
could not go on), and whatever the caller says is needed: what a job was started from, loads or samples now, or what the
user pinned.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """checkpoint_type: `resumable` or `weights-only`. created_at: seconds since the epoch; it orders equal steps."""

    checkpoint_id: str
    global_steps: int
    checkpoint_type: str
    created_at: float = 0.0


def removable_checkpoints(
    checkpoints: Sequence[StoredCheckpoint],
    *,
    keep_last: int | None,
    keep_every: int | None = None,
    needed: Collection[str] = (),
) -> list[str]:
    """Ids that the policy lets go, oldest first; none when `keep_last` is None.

    keep_last: number of newest checkpoints to keep, at least 1. keep_every: keep those whose step it divides.
    Raises ValueError for a number below 1.
    """
    for name, number in (("keep_last", keep_last), ("keep_every", keep_every)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if keep_last is None:
        return []
    ordered = sorted(checkpoints, key=lambda c: (c.global_steps, c.created_at, c.checkpoint_id))
    kept = {checkpoint.checkpoint_id for checkpoint in ordered[-keep_last:]} | set(needed)
    kept |= {c.checkpoint_id for c in ordered if keep_every is not None and c.global_steps % keep_every == 0}
    kept |= {c.checkpoint_id for c in [c for c in ordered if c.checkpoint_type == "resumable"][-1:]}
    return [c.checkpoint_id for c in ordered if c.checkpoint_id not in kept]

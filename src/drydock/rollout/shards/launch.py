"""What shards are started with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """Longest waits for a shard, in seconds.

    start_s: from the start of its process until it takes rollouts. silent_s: between two signs of life, which it gives
    every few seconds; then it is killed. cancel_s: for the sandbox of a cancelled rollout to be gone; then it is
    killed. stop_s: for its process to end once it is told to.
    """

    start_s: float = 120.0
    silent_s: float = 120.0
    cancel_s: float = 60.0
    stop_s: float = 15.0


@dataclass(frozen=True, slots=True)
class ShardLaunch:
    """How the shards of a run are started, and what to do when one dies.

    command: the process, to which the link's descriptor and the driver's pid are added; it calls `run_shard`.
    setups: what each shard is told at its start, one a shard. It goes over the link, so it may hold secrets.
    log_dir: where `shard_<number>.log` takes what a shard prints. turn_logs: folder of the rollouts' turn logs, from
    which the turns of lost rollouts are recovered.
    after_death: called in a thread when a shard has died, to remove what its sandboxes left.
    """

    command: tuple[str, ...]
    setups: Sequence[bytes] = field(repr=False)
    log_dir: Path
    turn_logs: Path | None = None
    after_death: Callable[[], object] | None = None
    limits: ShardLimits = ShardLimits()


def shares(total: int, shards: int) -> list[int]:
    """`total` divided among `shards`, as evenly as it goes; at least 1 each."""
    return [max(1, total // shards + (number < total % shards)) for number in range(shards)]

"""What is left of a rollout whose shard died: an outcome without a reward, and the turns that were written down."""

from pathlib import Path
from typing import Any

from drydock.proxy.record import RolloutRecord, TurnRecord
from drydock.proxy.turn_log import read_turn_log
from drydock.rollout.evidence import Evidence
from drydock.rollout.outcome import BLAME, Outcome
from drydock.rollout.shards.process import ShardDied
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory


def lost_trajectory(spec: RolloutSpec, died: ShardDied, turn_logs: Path | None, seconds: float) -> Trajectory:
    """The trajectory of `spec`: its sandbox went with its shard. Raises OSError when its turn log cannot be read."""
    record = recovered_record(spec.rollout_id, turn_logs)
    outcome = Outcome.SANDBOX_ERROR
    return Trajectory.of(
        spec,
        outcome=outcome,
        blame=BLAME[outcome],
        error=f"{died.said}, and the rollout with it",
        turns=len(record.turns),
        evidence=Evidence(
            exception=type(died).__name__,
            sampling_s=record.sampling_s,
            shard_log=died.log_tail,
        ),
        record=record,
        timings={"total_s": round(seconds, 4)},
    )


def recovered_record(rollout_id: str, turn_logs: Path | None) -> RolloutRecord:
    """Turns and conversation from the rollout's turn log. No samples, which a lost rollout has no use for.

    Tool definitions are not in the log, so no turn names any.
    """
    logged = [] if turn_logs is None else read_turn_log(turn_logs / f"{rollout_id}.jsonl")
    fields = set(TurnRecord.model_fields) - {"tools"}
    turns = [TurnRecord.model_validate(turn.model_dump(include=fields)) for turn in logged]
    return RolloutRecord(rollout_id=rollout_id, turns=turns, messages=_conversation(turns))


def _conversation(turns: list[TurnRecord]) -> list[dict[str, Any]]:
    """The messages up to the last turn's reply, along the turns that it goes on from."""
    by_index = {turn.index: turn for turn in turns}
    turn = turns[-1] if turns else None
    messages: list[dict[str, Any]] = []
    while turn is not None:
        messages = [*turn.given, turn.reply, *messages]
        turn = by_index.get(turn.parent) if turn.parent is not None else None
    return messages

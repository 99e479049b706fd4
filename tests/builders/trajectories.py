"""Trajectories with made-up tokens, for tests of what comes after a rollout."""

from collections.abc import Sequence

from drydock.proxy.record import LedgerSample, RolloutRecord
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory


def sample(loss_mask: Sequence[int], first_id: int = 10) -> LedgerSample:
    """Token ids count up from `first_id`; the log-prob of a sampled token is -id / 100."""
    ids = [first_id + place for place in range(len(loss_mask))]
    logprobs = [-token / 100 if own else 0.0 for token, own in zip(ids, loss_mask, strict=True)]
    return LedgerSample(token_ids=ids, loss_mask=list(loss_mask), logprobs=logprobs, turn_indices=[])


def trajectory(
    task: str = "t",
    reward: float | None = 1.0,
    samples: Sequence[LedgerSample] = (),
    *,
    repetition: int = 0,
    outcome: Outcome = Outcome.GRADED,
    error: str | None = None,
    advantage: float | None = None,
) -> Trajectory:
    """A rollout of `task` in step 1; one sample of two sampled tokens unless others are given."""
    rows = list(samples) or [sample([0, 0, 1, 1])]
    rollout_id = f"{task}-{repetition}"
    return Trajectory(
        rollout_id=rollout_id,
        task=task,
        task_path=f"tasks/{task}",
        repetition=repetition,
        step=1,
        split="train",
        outcome=outcome,
        error=error,
        reward=reward,
        advantage=advantage,
        record=RolloutRecord(rollout_id=rollout_id, samples=rows),
    )

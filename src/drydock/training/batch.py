"""Trajectories to training rows, and rows to the arrays of a forward-backward call.

A row is one ledger branch of one rollout. The ledger's masks and log-probs are *own-token* aligned (`x[i]` belongs to
`ids[i]`); the wire wants them *predict-next* (`x[i]` belongs to `ids[i+1]`). `shift_left` is the one place where that
changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drydock.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Row:
    """One training row, own-token aligned.

    token_ids, loss_mask (0/1), logprobs (behaviour policy, 0 where the mask is 0): all of the same length.
    advantage: of the whole rollout. weight: the row's share of its rollout's trained tokens, so that a rollout cut
    into several rows counts once.
    """

    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    logprobs: Sequence[float]
    advantage: float
    weight: float

    @property
    def trained_tokens(self) -> int:
        return sum(self.loss_mask)


def rows_of(trajectory: Trajectory) -> list[Row]:
    """The rows of a trajectory that has an advantage; branches without a sampled token are left out."""
    if trajectory.advantage is None:
        return []
    samples = [sample for sample in trajectory.record.samples if any(sample.loss_mask)]
    total = sum(sum(sample.loss_mask) for sample in samples)
    return [
        Row(sample.token_ids, sample.loss_mask, sample.logprobs, trajectory.advantage, sum(sample.loss_mask) / total)
        for sample in samples
    ]


def shift_left(values: np.ndarray) -> np.ndarray:
    """Own-token to predict-next: `[batch, seq]`, the last column becomes 0."""
    shifted = np.zeros_like(values)
    shifted[:, :-1] = values[:, 1:]
    return shifted


def policy_batch(rows: Sequence[Row], *, loss_fn: str, loss_config: dict[str, Any]) -> dict[str, Any]:
    """The forward-backward object of a policy-gradient loss; rows left-aligned, padded at the tail."""
    width = max(len(row.token_ids) for row in rows)
    ids = _pad([row.token_ids for row in rows], width, np.int64)
    attention = _pad([[1] * len(row.token_ids) for row in rows], width, np.int64)
    mask = _pad([row.loss_mask for row in rows], width, np.int64)
    logprobs = _pad([row.logprobs for row in rows], width, np.float32)
    predicted = shift_left(mask)
    advantages = np.asarray([[row.advantage] for row in rows], np.float32) * predicted
    return {
        "args": (),
        "kwargs": {"input_ids": ids, "attention_mask": attention},
        "context": {
            "advantages": advantages.astype(np.float32),
            "loss_mask": predicted,
            "old_log_probs_shifted": shift_left(logprobs),
            "sequence_loss_weights": np.asarray([row.weight for row in rows], np.float32),
        },
        "processing": {"loss_fn": loss_fn, "config": loss_config, "post": []},
    }


def _pad(values: Sequence[Sequence[Any]], width: int, dtype: Any) -> np.ndarray:
    padded = np.zeros((len(values), width), dtype)
    for index, row in enumerate(values):
        padded[index, : len(row)] = row
    return padded

"""Rows of a supervised batch, several of them packed into one up to a token budget.

Packed rows hold their sequences one after another; `position_ids` start again at 0 with each, and no sequence sees
another. Loss and gradient are those of the same rows unpacked.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from drydock.training.batch import Row


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices by row: first fit, longest first; each row's lengths add up to `budget` at most.

    A length above the budget stands alone. Rows and the indices in them are in ascending order.
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        place = next((row for row, free in enumerate(room) if free >= lengths[index]), None)
        if place is None:
            rows.append([])
            room.append(budget)
            place = len(rows) - 1
        rows[place].append(index)
        room[place] -= lengths[index]
    return sorted(sorted(row) for row in rows)


def supervised_batch(rows: Sequence[Row], budget: int | None = None) -> dict[str, Any]:
    """The forward-backward object of supervised fine-tuning: mean cross-entropy over the masked-in tokens.

    budget: pack rows up to so many tokens; None leaves each row alone. A row's first token is never predicted.
    """
    packed = (
        [[index] for index in range(len(rows))] if budget is None else pack([len(r.token_ids) for r in rows], budget)
    )
    width = max(sum(len(rows[index].token_ids) for index in indices) for indices in packed)
    ids, positions, mask, attention = (np.zeros((len(packed), width), np.int64) for _ in range(4))
    for place, indices in enumerate(packed):
        start = 0
        for index in indices:
            row = rows[index]
            end = start + len(row.token_ids)
            ids[place, start:end] = row.token_ids
            positions[place, start:end] = range(end - start)
            mask[place, start : end - 1] = row.loss_mask[1:]
            attention[place, start:end] = 1
            start = end
    kwargs = {"input_ids": ids, "attention_mask": attention}
    if len(packed) < len(rows):
        kwargs["position_ids"] = positions
    return {
        "args": (),
        "kwargs": kwargs,
        "context": {"loss_mask": mask},
        "processing": {"loss_fn": "causal_cross_entropy", "config": {}, "post": []},
    }

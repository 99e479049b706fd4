"""Rows that hold several sequences one after another: each becomes a row of its own before anything else is read.

`kwargs.position_ids` says where they are: they count from 0 and start again with each sequence. Every tensor per token
is cut at the same places; tensors per row then hold one value a sequence, in the order of the sequences. So packed and
padded rows are the same call and give the same numbers; answers per token are put back where they were asked for.
What would save time in other engines costs none here: rows are laid out anew in any case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.engine.request_arrays import array, position
from drydock.errors import UserError

PADDING = {"labels": -100, "temperature": 1}


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the sequences stand in the rows as they were sent.

    shape: [B, T] of those rows. rows, starts, lengths: of each sequence, [S].
    """

    shape: tuple[int, int]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def cut(self, values: NDArray[Any], padding: float = 0) -> NDArray[Any]:
        """[B, T, ...] to [S, longest, ...]."""
        width = int(self.lengths.max())
        cut = np.full((len(self.rows), width, *values.shape[2:]), padding, values.dtype)
        for sequence, (row, start, length) in enumerate(zip(self.rows, self.starts, self.lengths, strict=True)):
            cut[sequence, :length] = values[row, start : start + length]
        return cut

    def put_back(self, values: NDArray[Any]) -> NDArray[Any]:
        """[S, longest] to [B, T], 0 on padding."""
        whole = np.zeros(self.shape, values.dtype)
        for sequence, (row, start, length) in enumerate(zip(self.rows, self.starts, self.lengths, strict=True)):
            whole[row, start : start + length] = values[sequence, :length]
        return whole


def find_packing(kwargs: Mapping[str, Any]) -> Packing | None:
    """Where sequences start anew within a row, None where none does.

    Raises UserError for position ids that neither count on nor start again at 0.
    """
    ids = array(kwargs.get("input_ids"), "kwargs.input_ids", None)
    if kwargs.get("position_ids") is None or ids.ndim != 2 or 0 in ids.shape:
        return None
    positions = array(kwargs["position_ids"], "kwargs.position_ids", None)
    try:
        positions = np.broadcast_to(positions, ids.shape)
    except ValueError:
        raise UserError(f"kwargs.position_ids has shape {positions.shape}, expected {ids.shape}") from None
    real = np.ones(ids.shape, bool)
    if kwargs.get("attention_mask") is not None:
        real = array(kwargs["attention_mask"], "kwargs.attention_mask", ids.shape) != 0
    columns = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    starting = (positions == 0) | (columns == 0)
    starts = np.maximum.accumulate(np.where(starting, columns, 0), axis=1)
    if (wrong := (positions != columns - starts) & real).any():
        raise UserError(
            f"kwargs.position_ids is {positions[wrong][0]} at {position(wrong)}; it must count 0, 1, 2, ..., and start "
            "again at 0 with each sequence of a row"
        )
    rows, begins = np.nonzero(starting & real)
    if len(rows) == real.any(axis=1).sum():
        return None
    ends = np.append(begins[1:], 0)
    last = np.append(rows[1:] != rows[:-1], True)
    lengths = np.where(last, real.sum(axis=1)[rows], ends) - begins
    return Packing((ids.shape[0], ids.shape[1]), rows, begins, lengths)


def unpack(
    kwargs: Mapping[str, Any], context: Mapping[str, Any], packing: Packing
) -> tuple[dict[str, Any], dict[str, Any]]:
    """kwargs and context of the same call with one sequence a row."""

    def cut(key: str, value: Any) -> Any:
        values = None if value is None else array(value, key, None)
        if values is None or values.shape[:2] != packing.shape:
            return value
        return packing.cut(values, PADDING.get(key, 0))

    given = {key: cut(key, value) for key, value in kwargs.items() if key != "position_ids"}
    given["attention_mask"] = np.arange(packing.lengths.max())[None, :] < packing.lengths[:, None]
    return given, {key: cut(key, value) for key, value in context.items()}

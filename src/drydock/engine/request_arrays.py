"""Reading arrays out of a request; every refusal names the key."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.engine.foreign_tensors import REASONS
from drydock.errors import UserError


def array(value: Any, name: str, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """Any array of that shape."""
    try:
        values = np.asarray(value)
    except ValueError:
        raise UserError(f"{name} is ragged; pad its rows to one width") from None
    if shape is not None and values.shape != shape:
        raise UserError(f"{name} has shape {values.shape}, expected {shape}")
    return values


def floats(value: Any, name: str, shape: tuple[int, ...], *, finite: bool = True) -> NDArray[np.float64]:
    """Numbers of that shape, as float64."""
    try:
        values = array(value, name, shape).astype(np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must hold numbers") from None
    if finite and not np.isfinite(values).all():
        raise UserError(f"{name} holds a value that is not finite")
    return values


def integers(value: Any, name: str, shape: tuple[int, ...] | None = None) -> NDArray[np.int64]:
    """Integers, as int64."""
    values = array(value, name, shape)
    if values.dtype.kind not in "iu":
        raise UserError(f"{name} must hold integers, its dtype is {values.dtype}")
    return values.astype(np.int64)


def refuse_unknown(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises UserError for a key with a value that is not among `known`: why, or offering the nearest."""
    for key, value in given.items():
        if key not in known and value is not None:
            if key in REASONS:
                raise UserError(f"{where}: {key!r} is not supported: {REASONS[key]}")
            nearest = get_close_matches(key, known, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise UserError(f"{where}: {key!r} is not supported{hint}; supported: {', '.join(known)}")


def position(wrong: NDArray[np.bool_]) -> str:
    """Where the first true element of [rows, seq] is, in words."""
    row, column = (int(indices[0]) for indices in np.nonzero(wrong)[:2])
    return f"row {row}, position {column}"

"""What a forward-backward or forward frame must hold before it is worth a worker's time.

Whatever needs no engine is refused here, at once and by name: the shape of the object, rows of one number and width,
ids inside the vocabulary, rows within `max_seq_len`, names of losses and of their settings. What the loss makes of
its tensors is the engine's to say.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drydock.errors import WireError
from drydock.service.problems import Refusal
from drydock.service.row_limits import RowLimits
from drydock.wire.blob import Bytes
from drydock.wire.frame import Frame, decode_frame
from drydock.wire.loss_names import POSTS, problem_of


def check(data: Bytes, limits: RowLimits) -> Frame:
    """Decodes a forward-backward frame. Raises Refusal 400 (no frame) or 422 (naming the field)."""
    frame = decode(data)
    kwargs = check_inputs(frame.value, limits)
    context = _object(frame.value, "context")
    processing = _object(frame.value, "processing")
    rows, width = kwargs["input_ids"].shape
    for group, values in (("kwargs", kwargs), ("context", context)):
        for name, value in values.items():
            shape = getattr(value, "shape", None)
            if not shape or len(shape) < 2 or (name == "position_ids" and shape[0] == 1):
                continue  # one value a row or a sequence (packed rows), or one for all: the engine's to check
            if shape[0] != rows:
                raise Refusal(422, f"{group}.{name}: has {shape[0]} rows, input_ids has {rows}")
            if shape[1] != width:
                raise Refusal(422, f"{group}.{name}: has rows of {shape[1]} tokens, input_ids of {width}")
    loss_name, settings = processing.get("loss_fn"), _object(processing, "config", "processing.config")
    if not isinstance(loss_name, str | None):
        raise Refusal(422, f"processing.loss_fn: {type(loss_name).__name__} is no name")
    if problem := problem_of(loss_name or "sft", settings):
        raise Refusal(422, problem)
    check_posts(processing.get("post"), "processing.post")
    return frame


def check_posts(posts: Any, where: str) -> list[str]:
    """Names of what is to be computed beside the loss, from one name or several. Raises Refusal 422."""
    names = () if posts is None else (posts,) if isinstance(posts, str) else posts
    if not isinstance(names, list | tuple):
        raise Refusal(422, f"{where}: a {type(posts).__name__} is no name and no list of names")
    for name in names:
        if not isinstance(name, str) or name not in POSTS:
            shown = repr(name) if isinstance(name, str) else f"a {type(name).__name__}"
            raise Refusal(422, f"{where}: {shown} is not served; known: {', '.join(POSTS)}")
    return list(names)


def decode(data: Bytes) -> Frame:
    """The frame in a body, holding an object; its arrays may be views of `data`. Raises Refusal 400 or 422."""
    try:
        frame = decode_frame(data, copy=False)
    except WireError as error:
        raise Refusal(400, str(error)) from error
    if not isinstance(frame.value, dict):
        raise Refusal(422, f"the frame holds a {type(frame.value).__name__}, not an object")
    return frame


def check_inputs(value: Mapping[str, Any], limits: RowLimits) -> dict[str, Any]:
    """The model inputs, `input_ids` int [batch, tokens] among them. Raises Refusal 422."""
    kwargs = value.get("kwargs")
    if not isinstance(kwargs, dict):
        raise Refusal(422, "kwargs: missing; it holds input_ids [batch, tokens] and attention_mask")
    ids = kwargs.get("input_ids")
    if not isinstance(ids, np.ndarray):
        found = "missing" if ids is None else f"a {type(ids).__name__}"
        raise Refusal(422, f"kwargs.input_ids: must be an integer tensor [batch, tokens] ({found})")
    if ids.ndim != 2 or 0 in ids.shape or ids.dtype.kind not in "iu":
        raise Refusal(
            422,
            "kwargs.input_ids: must be an integer tensor [batch, tokens] with at least one row "
            f"(shape {list(ids.shape)}, dtype {ids.dtype}); sequences packed into one row of T tokens are [1, T] with "
            "position_ids that start again at 0",
        )
    real = _real_tokens(kwargs.get("attention_mask"), ids)
    lengths = _longest_sequences(kwargs.get("position_ids"), real)
    if limits.max_seq_len is not None and lengths.max() > limits.max_seq_len:
        row = int(lengths.argmax())
        raise Refusal(
            422,
            f"kwargs.input_ids: row {row} has a sequence of {lengths[row]} tokens, more than max_seq_len "
            f"{limits.max_seq_len}",
        )
    if limits.vocab_size is not None:
        wrong = ((ids < 0) | (ids >= limits.vocab_size)) & real
        if wrong.any():
            row, column = (int(index[0]) for index in np.nonzero(wrong))
            raise Refusal(
                422,
                f"kwargs.input_ids: token {ids[row, column]} at row {row}, position {column} is outside the "
                f"vocabulary of {limits.vocab_size}",
            )
    return kwargs


def _longest_sequences(positions: Any, real: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Tokens of the longest sequence in each row: of the row, or of those that position ids tell apart."""
    if isinstance(positions, np.ndarray) and positions.dtype.kind in "iu":
        with contextlib.suppress(ValueError):
            places = np.broadcast_to(positions, real.shape)
            return np.where(real, places, -1).max(axis=1).astype(np.int64) + 1
    return real.sum(axis=1)


def _real_tokens(mask: Any, ids: NDArray[Any]) -> NDArray[np.bool_]:
    if mask is None:
        return np.ones(ids.shape, bool)
    if not isinstance(mask, np.ndarray) or mask.shape != ids.shape:
        found = list(mask.shape) if isinstance(mask, np.ndarray) else type(mask).__name__
        raise Refusal(
            422, f"kwargs.attention_mask: must have the shape {list(ids.shape)} of input_ids (it has {found})"
        )
    return mask != 0


def _object(value: Mapping[str, Any], key: str, name: str | None = None) -> dict[str, Any]:
    inner = value.get(key)
    if inner is None:
        return {}
    if not isinstance(inner, dict):
        raise Refusal(422, f"{name or key}: must be an object, not a {type(inner).__name__}")
    return inner

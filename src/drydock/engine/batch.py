"""A forward-backward request, checked and brought into one form before anything is computed.

The contract is reference/training-api.md, section 4. Everything per token is predict-next aligned; rows are
left-aligned (real tokens first, pads at the tail). Where the contract is ambiguous or a part is not implemented,
the request is refused by name: a context tensor that would have changed the loss is never dropped in silence.

Labels without a processing block may be aligned with `input_ids` (as Hugging Face models expect them) or already
predict-next; which of the two is read off the tokens themselves (section 4.3). Labels that are neither are taken as
aligned with `input_ids`. Labels beside a named loss must be the next tokens (predict-next) wherever the mask is set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from drydock.errors import UserError
from drydock.losses import LossEntry, resolve_loss

KWARGS = ("input_ids", "attention_mask", "position_ids", "labels", "use_cache", "temperature")
CONTEXT = ("advantages", "loss_mask", "old_log_probs_shifted", "sequence_loss_weights", "input_ids")
TOP_LEVEL = ("args", "kwargs", "context", "processing", "rr_sample_ids", "rr_discard", "router_replay")
POSTS = ("identity", "compute_logprobs")
IGNORED_LABEL = -100


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One forward-backward call. B rows, T padded width; per-token arrays are predict-next aligned.

    input_ids: int64 [B, T]. lengths: real tokens of each row, int64 [B]. targets: int64 [B, T], the token that
    position i predicts (0 where there is none). loss_mask, advantages, old_logprobs: float64 [B, T].
    row_weights: float64 [B]. wants_logprobs: the client asked for log-probs of every real position.
    """

    input_ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    targets: NDArray[np.int64]
    loss_mask: NDArray[np.float64]
    advantages: NDArray[np.float64] | None
    old_logprobs: NDArray[np.float64] | None
    row_weights: NDArray[np.float64] | None
    loss: LossEntry
    config: BaseModel
    wants_logprobs: bool

    def needed(self) -> NDArray[np.bool_]:
        """Positions [B, T] whose log-prob is used: trained ones, or every one with a next token."""
        if not self.wants_logprobs:
            return self.loss_mask != 0
        return np.arange(self.input_ids.shape[1])[None, :] < (self.lengths - 1)[:, None]


def parse_batch(request: Mapping[str, Any], *, vocab_size: int, max_seq_len: int | None) -> TrainBatch:
    """Check a request and bring it into one form. Raises UserError (or ConfigError for the loss settings)."""
    _refuse_unknown("forward-backward", request, TOP_LEVEL)
    for key in ("rr_sample_ids", "rr_discard", "router_replay"):
        if request.get(key):
            raise UserError(f"{key} is not supported: this engine replays no expert routing")
    kwargs = request.get("kwargs") or {}
    context = request.get("context") or {}
    processing = request.get("processing")
    _refuse_unknown("kwargs", kwargs, KWARGS)
    _refuse_unknown("context", context, CONTEXT)
    if len(request.get("args") or ()):
        raise UserError("args must be empty; send the batch in kwargs")
    ids, lengths = _read_rows(kwargs, vocab_size, max_seq_len)
    targets = np.zeros_like(ids)
    targets[:, :-1] = ids[:, 1:]
    has_next = np.arange(ids.shape[1])[None, :] < (lengths - 1)[:, None]
    targets[~has_next] = 0

    posts = _read_posts(processing)
    if processing is None or not processing.get("loss_fn"):
        loss, config = resolve_loss("causal_cross_entropy", (processing or {}).get("config"))
        if "labels" not in kwargs:
            raise UserError("kwargs.labels is missing; without processing.loss_fn the loss is cross-entropy on labels")
        targets, mask = _read_labels(_array(kwargs["labels"], "kwargs.labels", ids.shape), ids, has_next, vocab_size)
    else:
        loss, config = resolve_loss(str(processing["loss_fn"]), processing.get("config"))
        if context.get("loss_mask") is None:
            raise UserError("context.loss_mask is missing; send one [B, T] tensor, predict-next aligned")
        mask = _floats(context["loss_mask"], "context.loss_mask", ids.shape)
        _check_mask(mask, has_next)
        if kwargs.get("labels") is not None:
            _check_labels(_array(kwargs["labels"], "kwargs.labels", ids.shape), targets, mask)

    trained = mask != 0
    advantages = _optional(context, "advantages", ids.shape, trained)
    if loss.needs_advantages and advantages is None:
        raise UserError(f"context.advantages is missing; loss {loss.name!r} needs one [B, T] tensor")
    return TrainBatch(
        input_ids=ids,
        lengths=lengths,
        targets=targets,
        loss_mask=mask,
        advantages=advantages,
        old_logprobs=_optional(context, "old_log_probs_shifted", ids.shape, trained),
        row_weights=_optional(context, "sequence_loss_weights", ids.shape[:1], trained.any(axis=1)),
        loss=loss,
        config=config,
        wants_logprobs="compute_logprobs" in posts,
    )


def _read_rows(
    kwargs: Mapping[str, Any], vocab_size: int, max_seq_len: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if kwargs.get("input_ids") is None:
        raise UserError("kwargs.input_ids is missing; send one integer [B, T] tensor")
    ids = _integers(kwargs["input_ids"], "kwargs.input_ids")
    if ids.ndim != 2 or 0 in ids.shape:
        raise UserError(f"kwargs.input_ids must be two-dimensional and not empty, its shape is {ids.shape}")
    mask = np.ones(ids.shape, bool)
    if kwargs.get("attention_mask") is not None:
        mask = _array(kwargs["attention_mask"], "kwargs.attention_mask", ids.shape) != 0
    lengths = mask.sum(axis=1).astype(np.int64)
    real = np.arange(ids.shape[1])[None, :] < lengths[:, None]
    if (real != mask).any():
        row = int((real != mask).any(axis=1).argmax())
        raise UserError(f"row {row} is not left-aligned: its attention_mask must be ones, then zeros")
    if max_seq_len is not None and lengths.max() > max_seq_len:
        row = int(lengths.argmax())
        raise UserError(f"row {row} has {lengths[row]} tokens, more than max_seq_len {max_seq_len}")
    ids = np.where(real, ids, 0)
    if ids.min() < 0 or ids.max() >= vocab_size:
        row, column = (int(v[0]) for v in np.nonzero((ids < 0) | (ids >= vocab_size)))
        raise UserError(
            f"token {ids[row, column]} at row {row}, position {column} is outside the vocabulary of {vocab_size}"
        )
    if kwargs.get("position_ids") is not None:
        positions = _array(kwargs["position_ids"], "kwargs.position_ids", None)
        if ((np.broadcast_to(positions, ids.shape) != np.arange(ids.shape[1])[None, :]) & real).any():
            raise UserError("kwargs.position_ids must count 0, 1, 2, ... in each row; packed rows are not supported")
    if kwargs.get("temperature") is not None and (np.asarray(kwargs["temperature"], dtype=np.float64) != 1.0).any():
        raise UserError("kwargs.temperature other than 1 is not supported")
    return ids, lengths


def _read_posts(processing: Mapping[str, Any] | None) -> tuple[str, ...]:
    if processing is None:
        return ()
    _refuse_unknown("processing", processing, ("loss_fn", "config", "post"))
    post = processing.get("post") or ()
    posts = (post,) if isinstance(post, str) else tuple(post)
    for name in posts:
        if name not in POSTS:
            raise UserError(f"unknown post-processing {name!r}; known: {', '.join(POSTS)}")
    return posts


def _read_labels(
    labels: NDArray[Any], ids: NDArray[np.int64], has_next: NDArray[np.bool_], vocab_size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Targets and mask, predict-next, from labels in either alignment."""
    labels = labels.astype(np.int64)
    next_ids = np.zeros_like(ids)
    next_ids[:, :-1] = ids[:, 1:]
    own_token = (labels == ids) | (labels == IGNORED_LABEL)
    predict_next = ((labels == next_ids) & has_next) | (labels == IGNORED_LABEL)
    if predict_next.all() and not own_token.all():
        shifted = labels
    else:
        shifted = np.full_like(labels, IGNORED_LABEL)
        shifted[:, :-1] = labels[:, 1:]
    mask = (shifted != IGNORED_LABEL) & has_next
    targets = np.where(mask, shifted, np.where(has_next, next_ids, 0))
    if targets.min() < 0 or targets.max() >= vocab_size:
        raise UserError(f"kwargs.labels must be {IGNORED_LABEL} or token ids below the vocabulary size {vocab_size}")
    return targets, mask.astype(np.float64)


def _check_mask(mask: NDArray[np.float64], has_next: NDArray[np.bool_]) -> None:
    if (mask < 0).any():
        raise UserError("context.loss_mask must not be negative")
    wrong = (mask != 0) & ~has_next
    if wrong.any():
        row, column = (int(v[0]) for v in np.nonzero(wrong))
        raise UserError(
            f"context.loss_mask is set at row {row}, position {column}, which predicts no real token; the mask is "
            "predict-next aligned (position i trains token i + 1)"
        )


def _check_labels(labels: NDArray[Any], targets: NDArray[np.int64], mask: NDArray[np.float64]) -> None:
    wrong = (mask != 0) & (labels != targets)
    if wrong.any():
        row, column = (int(v[0]) for v in np.nonzero(wrong))
        raise UserError(
            f"kwargs.labels[{row}, {column}] is {labels[row, column]}, but the mask trains token "
            f"{targets[row, column]} there; with a loss_fn, labels are predict-next aligned, or absent"
        )


def _optional(
    context: Mapping[str, Any], key: str, shape: tuple[int, ...], used: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    if context.get(key) is None:
        return None
    values = _floats(context[key], f"context.{key}", shape, finite=False)
    if not np.isfinite(values[used]).all():
        raise UserError(f"context.{key} holds a value that is not finite at a trained position")
    return np.where(used, values, 0.0)


def _array(value: Any, name: str, shape: tuple[int, ...] | None) -> NDArray[Any]:
    array = np.asarray(value)
    if shape is not None and array.shape != shape:
        raise UserError(f"{name} has shape {array.shape}, expected {shape}")
    return array


def _floats(value: Any, name: str, shape: tuple[int, ...], *, finite: bool = True) -> NDArray[np.float64]:
    try:
        array = _array(value, name, shape).astype(np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must hold numbers") from None
    if finite and not np.isfinite(array).all():
        raise UserError(f"{name} holds a value that is not finite")
    return array


def _integers(value: Any, name: str) -> NDArray[np.int64]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise UserError(f"{name} is ragged; pad its rows to one width") from None
    if array.dtype.kind not in "iu":
        raise UserError(f"{name} must hold integers, its dtype is {array.dtype}")
    return array.astype(np.int64)


def _refuse_unknown(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in given.items():
        if key not in known and value is not None:
            nearest = get_close_matches(key, known, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise UserError(f"{where}: {key!r} is not supported{hint}; supported: {', '.join(known)}")

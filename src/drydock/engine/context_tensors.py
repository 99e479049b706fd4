"""The tensors that a client may send in `context`, and how each is read.

A tensor that the loss does not read is refused by name: it would have changed nothing, and the client meant something
by it. Exceptions are `input_ids` (sent twice by the wire's own clients).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from drydock.engine.request_arrays import array, floats, integers, position, refuse_unknown
from drydock.errors import UserError
from drydock.losses import LossEntry

SCALES = ("batch_num_tokens", "global_batch_size", "dp_size")
"""Denominators that may stand in `context` as well as in the loss's settings."""


@dataclass(frozen=True, slots=True)
class ContextTensor:
    """field: its name in `LossInputs`, None where it is not handed on as it is. per: its shape.

    token: [B, T], predict-next, finite where the loss looks. candidate: [B, T, k]. row: [B].
    """

    field: str | None
    per: Literal["token", "candidate", "row"]
    kind: Literal["float", "integer", "not negative"] = "float"


TENSORS: dict[str, ContextTensor] = {
    "loss_mask": ContextTensor("loss_mask", "token", "not negative"),
    "advantages": ContextTensor("advantages", "token"),
    "old_log_probs_shifted": ContextTensor("old_logprobs", "token"),
    "prox_logp_shifted": ContextTensor("prox_logprobs", "token"),
    "ref_log_probs_shifted": ContextTensor("ref_logprobs", "token"),
    "teacher_log_probs_shifted": ContextTensor("teacher_logprobs", "token"),
    "teacher_topk_ids_shifted": ContextTensor(None, "candidate", "integer"),
    "teacher_topk_log_probs_shifted": ContextTensor("teacher_candidate_logprobs", "candidate"),
    "versions": ContextTensor("versions", "token"),
    "rollout_is_weights": ContextTensor("is_weights", "token", "not negative"),
    "echo_observation_mask": ContextTensor("observation_mask", "token", "not negative"),
    "sequence_loss_weights": ContextTensor("row_weights", "row", "not negative"),
    "prompt_group_ids": ContextTensor(None, "row", "integer"),
    "prompt_token_counts": ContextTensor("prompt_tokens", "row", "not negative"),
    "pair_ids": ContextTensor("pair_ids", "row", "integer"),
    "chosen": ContextTensor("chosen", "row"),
}


def merge_scales(context: Mapping[str, Any], settings: Mapping[str, Any] | None, loss: LossEntry) -> dict[str, Any]:
    """The loss's settings with the denominators of `context`.

    Raises UserError where both say something different, unless the loss lets its settings win.
    """
    merged = dict(settings or {})
    for key in SCALES:
        sent = context.get(key)
        if sent is None:
            continue
        if key not in loss.config.model_fields:
            raise UserError(f"context.{key} is not read by loss {loss.name!r}; leave it out")
        sent = array(sent, f"context.{key}", None)
        if sent.size != 1:
            raise UserError(f"context.{key} must be one number, its shape is {sent.shape}")
        number = sent.item()
        stated = merged.get(key)
        if stated is None:
            merged[key] = number
        elif not loss.settings_win and float(stated) != float(number):
            raise UserError(
                f"context.{key} is {number}, processing.config.{key} is {stated}; send one of them or the same in both"
            )
    return merged


def read_context(
    context: Mapping[str, Any],
    loss: LossEntry,
    shape: tuple[int, int],
    used: NDArray[np.bool_],
    vocab_size: int,
) -> dict[str, NDArray[Any]]:
    """Every tensor that was sent for `loss`, by wire name, 0 at positions that are not `used`; masks are not read.

    Raises UserError for a tensor that is unknown, not read by the loss, missing, of a wrong shape, or not finite at a
    used position.
    """
    refuse_unknown("context", context, (*TENSORS, *SCALES, "input_ids"))
    reads = loss.required | loss.optional
    for name in TENSORS:
        if context.get(name) is None and name in loss.required:
            raise UserError(f"context.{name} is missing; loss {loss.name!r} needs it")
        if context.get(name) is not None and name not in reads and name != "loss_mask":
            raise UserError(
                f"context.{name} is not read by loss {loss.name!r}; leave it out (read: {', '.join(sorted(reads))})"
            )
    return {
        name: _read(name, tensor, context[name], shape, used, vocab_size)
        for name, tensor in TENSORS.items()
        if name in reads and name != "echo_observation_mask" and context.get(name) is not None
    }


def read_mask(context: Mapping[str, Any], name: str, has_next: NDArray[np.bool_]) -> NDArray[np.float64]:
    """A mask [B, T] that must be sent. Raises UserError where it is set on a position that predicts no real token."""
    if context.get(name) is None:
        raise UserError(f"context.{name} is missing; send one [B, T] tensor, predict-next aligned")
    mask = floats(context[name], f"context.{name}", has_next.shape)
    if (mask < 0).any():
        raise UserError(f"context.{name} must not be negative")
    if (wrong := (mask != 0) & ~has_next).any():
        raise UserError(
            f"context.{name} is set at {position(wrong)}, which predicts no real token; the mask is predict-next "
            "aligned (position i trains token i + 1)"
        )
    return mask


def _read(
    name: str, tensor: ContextTensor, value: Any, shape: tuple[int, int], used: NDArray[np.bool_], vocab_size: int
) -> NDArray[Any]:
    where = f"context.{name}"
    if tensor.per == "candidate":
        expected = (*shape, array(value, where, None).shape[-1] if np.ndim(value) == 3 else 1)
        look = used[:, :, None]
    else:
        expected = shape if tensor.per == "token" else shape[:1]
        look = used if tensor.per == "token" else used.any(axis=1)
    if tensor.kind == "integer":
        numbers = integers(value, where, expected)
        if tensor.per == "candidate" and ((numbers < 0) | (numbers >= vocab_size))[used].any():
            raise UserError(f"{where} names a token outside the vocabulary of {vocab_size}")
        return np.where(look, numbers, 0) if tensor.per == "candidate" else numbers
    values = floats(value, where, expected, finite=False)
    kept = np.where(look, values, 0.0)
    if not np.isfinite(kept).all():
        raise UserError(f"{where} holds a value that is not finite at a trained position")
    if tensor.kind == "not negative" and (kept < 0).any():
        raise UserError(f"{where} must not be negative")
    return kept

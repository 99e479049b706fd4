"""A forward-backward request, checked and brought into one form before anything is computed.

The contract is reference/training-api.md, section 4. Everything per token is predict-next aligned; rows are
left-aligned (real tokens first, pads at the tail); a row that holds several sequences is cut into rows first
(`drydock.engine.packed_rows`). Where the contract is ambiguous or a part is not implemented, the request is refused by
name: a context tensor that would have changed the loss is never dropped in silence.

Without a loss name the loss is `sft`, cross-entropy on `kwargs.labels`; how those are aligned is settled in
`drydock.engine.labels`. Labels beside a loss on `context.loss_mask` must be the next tokens (predict-next) wherever
the mask is set. `kwargs.temperature` (one number, or [B, T] predict-next) divides the logits, so that log-probs are
those of the distribution that was sampled from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drydock.engine.context_tensors import TENSORS, merge_scales, read_context, read_mask
from drydock.engine.labels import align_labels, next_tokens
from drydock.engine.packed_rows import Packing, find_packing, unpack
from drydock.engine.request_arrays import array, floats, integers, position, refuse_unknown
from drydock.engine.token_scores import TokenScores, Wanted
from drydock.errors import UserError
from drydock.losses import (
    LOSSES,
    Aggregation,
    Denominators,
    LossEntry,
    LossInputs,
    count_denominators,
    count_prompt_tokens,
    resolve_loss,
)
from drydock.wire.loss_names import POSTS

KWARGS = ("input_ids", "attention_mask", "position_ids", "labels", "use_cache", "temperature")
TOP_LEVEL = ("args", "kwargs", "context", "processing", "meta", "rr_sample_ids", "rr_discard", "router_replay")
OUTPUTS: dict[str, tuple[str, ...]] = {
    "identity": (),
    "apply_temperature": (),
    "compute_logprobs": ("logprobs",),
    "compute_entropy": ("entropy",),
    "compute_entropy_and_logprobs": ("entropy", "logprobs"),
    "ap_compute_logprobs": ("entropy", "logprobs"),
}
"""What each post puts into the answer. A given temperature is always applied; the post by that name insists on one."""


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One forward-backward call. B rows, T padded width; per-token arrays are predict-next aligned.

    input_ids: int64 [B, T]. lengths: real tokens of each row, int64 [B]. targets: int64 [B, T], the token that
    position i predicts (0 where there is none). loss_mask: float64 [B, T]. context: what else the client sent for the
    loss, by wire name. temperature: float64 [B, T], None where it is 1 everywhere.
    outputs: what the client asked for of every real position, `logprobs` and `entropy`. packing: how the sequences
    were packed into rows, None where each has its own.
    """

    input_ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    targets: NDArray[np.int64]
    loss_mask: NDArray[np.float64]
    context: dict[str, NDArray[Any]]
    temperature: NDArray[np.float64] | None
    loss: LossEntry
    config: Any
    outputs: frozenset[str]
    packing: Packing | None = None

    @property
    def trained(self) -> NDArray[np.bool_]:
        """Positions [B, T] that the loss looks at."""
        observed = self.context.get("echo_observation_mask")
        return self.loss_mask != 0 if observed is None else (self.loss_mask != 0) | (observed != 0)

    @property
    def candidates(self) -> NDArray[np.int64] | None:
        """Tokens [B, T, k] whose log-probs the loss reads beside the targets'."""
        return self.context.get("teacher_topk_ids_shifted")

    @property
    def wanted(self) -> Wanted:
        """Scores that have to be computed beside log-probs."""
        candidates = self.candidates
        entropy = "entropy" in self.outputs or self.loss.needs_entropy(self.config)
        return Wanted(entropy, 0 if candidates is None else candidates.shape[-1])

    @property
    def couples_rows(self) -> bool:
        """Whether the loss must see all rows at once."""
        return self.loss.couples_rows(self.config)

    def needed(self) -> NDArray[np.bool_]:
        """Positions [B, T] whose scores are used: trained ones, or every one with a next token."""
        if not self.outputs:
            return self.trained
        return np.arange(self.input_ids.shape[1])[None, :] < (self.lengths - 1)[:, None]

    def denominators(self, ranks: int) -> Denominators:
        """What the means of this call divide by, with as many data-parallel ranks."""
        weights, groups = self.context.get("sequence_loss_weights"), self.context.get("prompt_group_ids")
        return count_denominators(
            torch.from_numpy(self.loss_mask),
            None if weights is None else torch.from_numpy(weights),
            batch_num_tokens=getattr(self.config, "batch_num_tokens", None),
            global_batch_size=getattr(self.config, "global_batch_size", None),
            dp_size=ranks,
            prompt_group_ids=None if groups is None else torch.from_numpy(groups),
        )

    def loss_inputs(self, rows: Sequence[int], scores: TokenScores) -> LossInputs:
        """The loss's inputs of some rows from their scores; in float64, so that no order of adding up can be seen."""
        chosen, width = list(rows), scores.logprobs.shape[1]
        device = scores.logprobs.device

        def part(values: NDArray[Any]) -> Tensor:
            values = values[chosen] if values.ndim == 1 else values[chosen, :width]
            return torch.from_numpy(np.ascontiguousarray(values)).to(device)

        fields = {
            tensor.field: part(self.context[name])
            for name, tensor in TENSORS.items()
            if tensor.field is not None and name in self.context
        }
        groups = self.context.get("prompt_group_ids")
        if groups is not None and "prompt_tokens" not in fields:
            counts = count_prompt_tokens(torch.from_numpy(self.loss_mask != 0).double(), torch.from_numpy(groups))
            fields["prompt_tokens"] = counts[chosen].to(device)
        trained = part(self.trained)
        return LossInputs(
            logprobs=torch.where(trained, scores.logprobs.double(), 0.0),
            loss_mask=part(self.loss_mask),
            entropy=None if scores.entropy is None else torch.where(trained, scores.entropy.double(), 0.0),
            candidate_logprobs=None if scores.candidates is None else scores.candidates.double(),
            **fields,
        )


def parse_batch(request: Mapping[str, Any], *, vocab_size: int, max_seq_len: int | None) -> TrainBatch:
    """Check a request and bring it into one form. Raises UserError (or ConfigError for the loss settings)."""
    _refuse_strangers(request)
    kwargs, context, processing = (dict(request.get(key) or {}) for key in ("kwargs", "context", "processing"))
    refuse_unknown("processing", processing, ("loss_fn", "config", "post"))
    name = str(processing.get("loss_fn") or "")
    settings = processing.get("config")
    if name in LOSSES:
        settings = merge_scales(context, settings, LOSSES[name])
    loss, config = resolve_loss(name or "sft", settings)
    if (packing := find_packing(kwargs)) is not None:
        kwargs, context = unpack(kwargs, context, packing)
        _check_packable(config)
    ids, lengths = _read_rows(kwargs, vocab_size, max_seq_len)
    targets, has_next = next_tokens(ids, lengths)
    if loss.reads_labels:
        if kwargs.get("labels") is None:
            which = f"loss {name!r}" if name else "without processing.loss_fn the loss"
            raise UserError(f"kwargs.labels is missing; {which} is cross-entropy on labels")
        if context.get("loss_mask") is not None:
            raise UserError(
                f"context.loss_mask is not read by loss {loss.name!r}, which trains where labels are not -100; leave "
                "it out, or use loss 'causal_cross_entropy'"
            )
        labels = integers(kwargs["labels"], "kwargs.labels", ids.shape)
        targets, mask = align_labels(labels, ids, lengths, config.label_alignment, vocab_size)
    else:
        mask = read_mask(context, "loss_mask", has_next)
        if kwargs.get("labels") is not None:
            _check_labels(integers(kwargs["labels"], "kwargs.labels", ids.shape), targets, mask)
    used = mask != 0
    masks: dict[str, NDArray[Any]] = {}
    if "echo_observation_mask" in loss.required:
        masks["echo_observation_mask"] = read_mask(context, "echo_observation_mask", has_next)
        used |= masks["echo_observation_mask"] != 0
    tensors = read_context(context, loss, (ids.shape[0], ids.shape[1]), used, vocab_size) | masks
    loss.check(config, tensors | {"loss_mask": mask})
    posts = _read_posts(processing, kwargs)
    batch = TrainBatch(ids, lengths, targets, mask, tensors, None, loss, config, posts, packing)
    return replace(batch, temperature=_read_temperature(kwargs, batch))


def parse_forward(request: Mapping[str, Any], *, vocab_size: int, max_seq_len: int | None) -> TrainBatch:
    """A batch that trains nothing: log-probs of every real position, and what `processing.post` asks for beside them.

    Of the request only `kwargs` (without labels) and `processing.post` are looked at.
    """
    _refuse_strangers(request)
    kwargs = {key: value for key, value in (request.get("kwargs") or {}).items() if key != "labels"}
    if (packing := find_packing(kwargs)) is not None:
        kwargs, _ = unpack(kwargs, {}, packing)
    ids, lengths = _read_rows(kwargs, vocab_size, max_seq_len)
    targets, _ = next_tokens(ids, lengths)
    outputs = _read_posts(request.get("processing") or {}, kwargs) | {"logprobs"}
    loss, config = resolve_loss("grpo")
    batch = TrainBatch(ids, lengths, targets, np.zeros(ids.shape), {}, None, loss, config, outputs, packing)
    return replace(batch, temperature=_read_temperature(kwargs, batch))


def _refuse_strangers(request: Mapping[str, Any]) -> None:
    refuse_unknown("forward-backward", request, TOP_LEVEL)
    for key in ("rr_sample_ids", "rr_discard", "router_replay"):
        if request.get(key):
            raise UserError(f"{key} is not supported: this engine replays no expert routing")
    if request.get("meta"):
        raise UserError("meta is not supported; send loss tensors in context and model inputs in kwargs")
    if len(request.get("args") or ()):
        raise UserError("args must be empty; send the batch in kwargs")
    refuse_unknown("kwargs", request.get("kwargs") or {}, KWARGS)


def _read_rows(
    kwargs: Mapping[str, Any], vocab_size: int, max_seq_len: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if kwargs.get("input_ids") is None:
        raise UserError("kwargs.input_ids is missing; send one integer [B, T] tensor")
    ids = integers(kwargs["input_ids"], "kwargs.input_ids")
    if ids.ndim != 2 or 0 in ids.shape:
        raise UserError(f"kwargs.input_ids must be two-dimensional and not empty, its shape is {ids.shape}")
    mask = np.ones(ids.shape, bool)
    if kwargs.get("attention_mask") is not None:
        mask = array(kwargs["attention_mask"], "kwargs.attention_mask", ids.shape) != 0
    lengths = mask.sum(axis=1).astype(np.int64)
    real = np.arange(ids.shape[1])[None, :] < lengths[:, None]
    if (real != mask).any():
        row = int((real != mask).any(axis=1).argmax())
        raise UserError(f"row {row} is not left-aligned: its attention_mask must be ones, then zeros")
    if max_seq_len is not None and lengths.max() > max_seq_len:
        row = int(lengths.argmax())
        raise UserError(f"row {row} has {lengths[row]} tokens, more than max_seq_len {max_seq_len}")
    ids = np.where(real, ids, 0)
    if (wrong := (ids < 0) | (ids >= vocab_size)).any():
        raise UserError(f"token {ids[wrong][0]} at {position(wrong)} is outside the vocabulary of {vocab_size}")
    return ids, lengths


def _check_packable(config: Any) -> None:
    mode = getattr(config, "loss_agg_mode", None)
    if mode is Aggregation.SEQ_MEAN_TOKEN_SUM_NORM and config.loss_scale_factor is None:
        raise UserError(
            "loss_agg_mode 'seq-mean-token-sum-norm' divides by the padded row width, which packed rows do not have; "
            "set loss_scale_factor"
        )


def _read_posts(processing: Mapping[str, Any], kwargs: Mapping[str, Any]) -> frozenset[str]:
    post = processing.get("post") or ()
    posts = (post,) if isinstance(post, str) else tuple(post)
    for name in posts:
        if name not in POSTS:
            raise UserError(f"unknown post-processing {name!r}; known: {', '.join(POSTS)}")
    if "apply_temperature" in posts and kwargs.get("temperature") is None:
        raise UserError("post 'apply_temperature' needs kwargs.temperature, one number or a [B, T] tensor")
    return frozenset(output for name in posts for output in OUTPUTS[name])


def _read_temperature(kwargs: Mapping[str, Any], batch: TrainBatch) -> NDArray[np.float64] | None:
    """[B, T], 1 where the batch needs no score; None where it is 1 everywhere."""
    if kwargs.get("temperature") is None:
        return None
    given = array(kwargs["temperature"], "kwargs.temperature", None)
    if given.size != 1 and given.shape != batch.input_ids.shape:
        raise UserError(
            f"kwargs.temperature must be one number or have the shape {batch.input_ids.shape} of input_ids, its shape "
            f"is {given.shape}"
        )
    shape = batch.input_ids.shape
    temperature = floats(
        np.broadcast_to(given.reshape(()) if given.size == 1 else given, shape), "kwargs.temperature", shape
    )
    temperature = np.where(batch.needed(), temperature, 1.0)
    if (temperature <= 0).any():
        raise UserError(
            f"kwargs.temperature must be above 0, it is {temperature.min():g} at {position(temperature <= 0)} (greedy "
            "sampling reports log-probs at temperature 1: send 1)"
        )
    if (temperature == 1.0).all():
        return None
    if not batch.loss.takes_temperature:
        raise UserError(f"kwargs.temperature must be 1 or absent with loss {batch.loss.name!r}")
    return temperature


def _check_labels(labels: NDArray[np.int64], targets: NDArray[np.int64], mask: NDArray[np.float64]) -> None:
    wrong = (mask != 0) & (labels != targets)
    if wrong.any():
        row, column = (int(v[0]) for v in np.nonzero(wrong))
        raise UserError(
            f"kwargs.labels[{row}, {column}] is {labels[row, column]}, but the mask trains token "
            f"{targets[row, column]} there; with a loss_fn, labels are predict-next aligned, or absent"
        )

"""Log-probs of the rows of a micro-batch, a shared token prefix computed once. Exact, forward and backward.

The prefix runs as one row with a KV cache that stays in the autograd graph; its keys and values are expanded
(a view) to the rows; the rows' own tokens, padded at the tail, run against them; one backward pass then reaches the
prefix through all rows. Predictions inside the prefix are the prefix row's logits read with each row's own targets,
so trained positions there (earlier turns that several branches of a rollout have in common) and the first own token
of each row (predicted by the prefix's last position) need no special case.

Pads need no mask: they stand behind every real token, and attention is causal.

This rests on a cache that is made of attention layers whose stored tensors carry gradients. `why_not_shared` tests
a model for it; where the answer is not None the engine computes rows unshared and reports the reason.
"""

# ruff: noqa: F722
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from drydock.engine.model import ModelCall
from drydock.engine.token_scores import TokenScores, join, score_logits, score_shared_logits, spread

PROBE_TOLERANCE = 1e-3


def row_scores(
    call: ModelCall,
    input_ids: Int[Tensor, "rows seq"],
    targets: Int[Tensor, "rows seq"],
    needed: Bool[Tensor, "rows seq"],
    prefix_length: int,
    *,
    temperature: Float[Tensor, "rows seq"] | None = None,
    entropy: bool = False,
    candidates: Int[Tensor, "rows seq k"] | None = None,
) -> TokenScores:
    """Scores of each target (predict-next) where `needed`, 0 elsewhere, float32 or wider, with gradient.

    The first `prefix_length` columns of `input_ids` must be equal in all rows, and less than its width.
    temperature: divides the logits of each position. candidates: further tokens whose log-probs are wanted.
    """
    rows = _Rows(input_ids, targets, needed, temperature, entropy, candidates)
    if prefix_length == 0:
        return _own_scores(call, rows, None)
    cache = DynamicCache(config=call.model.config)
    prefix = _prefix_scores(call, rows.columns(slice(0, prefix_length)), cache)
    expand_cache(cache, input_ids.shape[0])
    return join(prefix, _own_scores(call, rows.columns(slice(prefix_length, None)), cache))


def expand_cache(cache: DynamicCache, rows: int) -> None:
    """Make a cache of one row serve `rows` rows, as views."""
    for layer in cache.layers:
        if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
            layer.keys = layer.keys.expand(rows, *layer.keys.shape[1:])
            layer.values = layer.values.expand(rows, *layer.values.shape[1:])


def why_not_shared(call: ModelCall) -> str | None:
    """None when sharing is exact for this model, else the reason, in a few words that can be part of a metric name."""
    model = call.model
    device = model.device
    tokens = torch.arange(1, 9, device=device)[None] % model.config.get_text_config(decoder=True).vocab_size
    with torch.enable_grad(), _embeddings_with_gradient(model):
        cache = DynamicCache(config=model.config)
        call.all_logits(tokens[:, :4], cache, last=1)
        for layer in cache.layers:
            if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
                return f"cache_layer_{type(layer).__name__}"
            if not (layer.keys.requires_grad and layer.values.requires_grad):
                return "cache_without_gradient"
        expand_cache(cache, 2)
        own = torch.cat([tokens[:, 4:], tokens[:, 4:].flip(1)])
        shared = call.all_logits(own, cache, last=4)
    with torch.no_grad():
        whole = call.all_logits(torch.cat([tokens[:, :4].expand(2, -1), own], dim=1), last=4)
        scale = whole.abs().max().clamp(min=1.0)
        tolerance = PROBE_TOLERANCE if whole.dtype in (torch.float32, torch.float64) else 0.1
        return None if ((shared - whole).abs().max() / scale) < tolerance else "cached_and_whole_forward_differ"


@contextmanager
def _embeddings_with_gradient(model: PreTrainedModel) -> Iterator[None]:
    """Have the embeddings' output require a gradient, so that every cache layer that carries one shows it.

    Where an adapter is trained, a layer's keys may depend on nothing that is trained; that is no fault of its cache.
    """

    def require_gradient(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        if not output.requires_grad:
            output.requires_grad_()

    handle = model.get_input_embeddings().register_forward_hook(require_gradient)
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True, slots=True)
class _Rows:
    input_ids: Tensor
    targets: Tensor
    needed: Tensor
    temperature: Tensor | None
    entropy: bool
    candidates: Tensor | None

    def columns(self, part: slice) -> "_Rows":
        return _Rows(
            self.input_ids[:, part],
            self.targets[:, part],
            self.needed[:, part],
            None if self.temperature is None else self.temperature[:, part],
            self.entropy,
            None if self.candidates is None else self.candidates[:, part],
        )


def _own_scores(call: ModelCall, rows: _Rows, cache: DynamicCache | None) -> TokenScores:
    scores = score_logits(
        call.logits_at(rows.input_ids, rows.needed, cache),
        rows.targets[rows.needed],
        None if rows.temperature is None else rows.temperature[rows.needed],
        None if rows.candidates is None else rows.candidates[rows.needed],
        entropy=rows.entropy,
    )
    return spread(scores, rows.needed)


def _prefix_scores(call: ModelCall, rows: _Rows, cache: DynamicCache) -> TokenScores:
    """Of columns that are equal in all rows, computed once; fills `cache`."""
    anywhere = rows.needed.any(dim=0)
    keep = anywhere.clone()
    keep[0] |= ~anywhere.any()
    logits = call.logits_at(rows.input_ids[:1], keep[None], cache)
    scores = score_shared_logits(
        logits,
        rows.targets[:, keep],
        None if rows.temperature is None else rows.temperature[:, keep],
        None if rows.candidates is None else rows.candidates[:, keep],
        entropy=rows.entropy,
    )
    whole = TokenScores.zeros(tuple(rows.targets.shape), scores.wanted(), scores.logprobs)
    for target, values in zip(whole.tensors(), scores.tensors(), strict=True):
        target[:, keep] = values * rows.needed[:, keep].reshape(values.shape[:2] + (1,) * (values.ndim - 2))
    return whole

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
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from drydock.engine.model import ModelCall

PROBE_TOLERANCE = 1e-3


def row_logprobs(
    call: ModelCall,
    input_ids: Int[Tensor, "rows seq"],
    targets: Int[Tensor, "rows seq"],
    needed: Bool[Tensor, "rows seq"],
    prefix_length: int,
) -> Float[Tensor, "rows seq"]:
    """Log-prob of each target (predict-next) where `needed`, 0 elsewhere, float32 or wider, with gradient.

    The first `prefix_length` columns of `input_ids` must be equal in all rows, and less than its width.
    """
    rows = input_ids.shape[0]
    if prefix_length == 0:
        return _own_logprobs(call, input_ids, targets, needed, None)
    cache = DynamicCache(config=call.model.config)
    prefix = _prefix_logprobs(
        call, input_ids[:1, :prefix_length], targets[:, :prefix_length], needed[:, :prefix_length], cache
    )
    expand_cache(cache, rows)
    own = _own_logprobs(
        call, input_ids[:, prefix_length:], targets[:, prefix_length:], needed[:, prefix_length:], cache
    )
    return torch.cat([prefix, own], dim=1)


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
    with torch.enable_grad():
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


def _own_logprobs(
    call: ModelCall, input_ids: Tensor, targets: Tensor, needed: Tensor, cache: DynamicCache | None
) -> Tensor:
    logits = call.logits_at(input_ids, needed, cache)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    result = logits.new_zeros(input_ids.shape)
    result[needed] = -cross_entropy(logits, targets[needed], reduction="none")
    return result


def _prefix_logprobs(
    call: ModelCall, input_ids: Tensor, targets: Tensor, needed: Tensor, cache: DynamicCache
) -> Tensor:
    """input_ids [1, prefix]; targets and needed [rows, prefix]; fills `cache`; log-probs [rows, prefix]."""
    anywhere = needed.any(dim=0)
    keep = anywhere if bool(anywhere.any()) else torch.arange(len(anywhere), device=anywhere.device) == 0
    logits = call.logits_at(input_ids, keep[None], cache)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    result = logits.new_zeros(targets.shape)
    if bool(anywhere.any()):
        chosen = log_softmax(logits, dim=-1).gather(1, targets[:, anywhere].T).T
        result[:, anywhere] = chosen * needed[:, anywhere]
    return result

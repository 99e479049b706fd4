"""Recomputing a layer's activations in the backward pass instead of keeping them (arXiv 1604.06174).

transformers does this only for models in training mode and only without a KV cache; this engine trains in eval mode
and shares prefixes through a cache that gradients flow through. So each decoder layer is wrapped here. A layer that
writes to the cache gets, in every run, copies of the cache layers as they were before it, so that running it a second
time reads and appends exactly what the first run did; what the first run wrote stays in the cache and in the graph.
"""

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from drydock.errors import ConfigError


def recompute_activations(model: PreTrainedModel) -> int:
    """Wrap the model's layers; their number. Raises ConfigError when the model has none that can be wrapped."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"training_config.activation_checkpointing: {type(model).__name__} has no layers that can be recomputed; "
            "turn it off"
        )
    for layer in layers:
        layer.forward = _recomputed(layer.forward)
    return len(layers)


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        cache = next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
        if cache is None:
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)
        before = [copy.copy(layer) for layer in cache.layers]
        written: list[Any] = []

        def run() -> Any:
            present, cache.layers = cache.layers, [copy.copy(layer) for layer in before]
            if not written:
                written.extend(cache.layers)
            try:
                return forward(*args, **kwargs)
            finally:
                cache.layers = present

        output = checkpoint(run, use_reentrant=False)
        cache.layers = list(written)
        written[:] = [None]
        return output

    return call

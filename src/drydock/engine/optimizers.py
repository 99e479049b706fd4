"""Building the optimizer that a `training_config` names."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from drydock.engine.optimizer_settings import OptimizerConfig
from drydock.errors import ConfigError


def build_optimizer(parameters: Mapping[str, nn.Parameter], settings: OptimizerConfig) -> torch.optim.Optimizer:
    """An optimizer over `parameters`, with weight decay on those of two or more dimensions only.

    Raises ConfigError when the package that implements it is not installed.
    """
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters.values() if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters.values() if p.ndim < 2], "weight_decay": 0.0},
    ]
    match settings.kind:
        case "adamw":
            return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)
        case "adamw_8bit":
            return _adamw_8bit(groups, settings)
        case "sgd":
            return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov)


def _adamw_8bit(groups: list[dict[str, Any]], settings: OptimizerConfig) -> torch.optim.Optimizer:
    try:
        import bitsandbytes  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            f"training_config.optimizer.name: {settings.name} needs the package bitsandbytes, which is not installed "
            "where the trainer runs; install it (pip install 'drydock-rl[bitsandbytes]') or choose AdamW"
        ) from None
    return bitsandbytes.optim.AdamW8bit(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps)

"""Loss functions: pure, one a file, chosen by name."""

from drydock.losses.aggregation import Aggregation, aggregate, count_denominators
from drydock.losses.base import Denominators, LossFunction, LossInputs, LossOutput
from drydock.losses.cross_entropy import CrossEntropyConfig, cross_entropy_loss
from drydock.losses.grpo import GrpoConfig, grpo_loss
from drydock.losses.registry import LOSSES, LossEntry, resolve_loss

__all__ = [
    "LOSSES",
    "Aggregation",
    "CrossEntropyConfig",
    "Denominators",
    "GrpoConfig",
    "LossEntry",
    "LossFunction",
    "LossInputs",
    "LossOutput",
    "aggregate",
    "count_denominators",
    "cross_entropy_loss",
    "grpo_loss",
    "resolve_loss",
]

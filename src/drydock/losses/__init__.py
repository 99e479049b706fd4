"""Loss functions: pure, one a file, chosen by name."""

from drydock.losses.aggregation import (
    Aggregation,
    AggregationConfig,
    aggregate,
    count_denominators,
    count_prompt_tokens,
)
from drydock.losses.base import Denominators, LossFunction, LossInputs, LossOutput
from drydock.losses.cross_entropy import CrossEntropyConfig, cross_entropy_loss
from drydock.losses.distillation import DistillationConfig, distillation_loss
from drydock.losses.dpo import DpoConfig, dpo_loss
from drydock.losses.dppo import DppoConfig, dppo_loss
from drydock.losses.echo import EchoConfig, echo_loss
from drydock.losses.grpo import grpo_loss
from drydock.losses.grpo_config import GrpoConfig
from drydock.losses.off_policy import OffPolicyCorrection
from drydock.losses.registry import LOSSES, LossEntry, resolve_loss
from drydock.losses.rollout_is import RolloutIsConfig, rollout_is_loss
from drydock.losses.sft import LabelAlignment, SftCeConfig, SftConfig, sft_loss

__all__ = [
    "LOSSES",
    "Aggregation",
    "AggregationConfig",
    "CrossEntropyConfig",
    "Denominators",
    "DistillationConfig",
    "DpoConfig",
    "DppoConfig",
    "EchoConfig",
    "GrpoConfig",
    "LabelAlignment",
    "LossEntry",
    "LossFunction",
    "LossInputs",
    "LossOutput",
    "OffPolicyCorrection",
    "RolloutIsConfig",
    "SftCeConfig",
    "SftConfig",
    "aggregate",
    "count_denominators",
    "count_prompt_tokens",
    "cross_entropy_loss",
    "distillation_loss",
    "dpo_loss",
    "dppo_loss",
    "echo_loss",
    "grpo_loss",
    "resolve_loss",
    "rollout_is_loss",
    "sft_loss",
]

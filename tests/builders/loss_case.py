"""Small loss inputs from probabilities, and losses run on them as the engine would."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from drydock.losses import LOSSES, LossInputs, LossOutput, count_denominators, count_prompt_tokens, resolve_loss


def logs(*rows: list[float]) -> Tensor:
    """Natural logs [rows, seq] of probabilities, float64."""
    return torch.tensor(rows, dtype=torch.float64).log()


def floats(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def run_loss(
    name: str, settings: Mapping[str, Any], inputs: LossInputs, *, prompt_group_ids: Tensor | None = None
) -> LossOutput:
    """One call with all its rows, denominators counted."""
    _, config = resolve_loss(name, settings)
    if prompt_group_ids is not None:
        inputs = replace(inputs, prompt_tokens=count_prompt_tokens(inputs.loss_mask, prompt_group_ids))
    denominators = count_denominators(
        inputs.loss_mask,
        inputs.row_weights,
        batch_num_tokens=getattr(config, "batch_num_tokens", None),
        global_batch_size=getattr(config, "global_batch_size", None),
        dp_size=getattr(config, "dp_size", None),
        prompt_group_ids=prompt_group_ids,
    )
    return LOSSES[name].function(inputs, config, denominators)


def gradient_of(name: str, settings: Mapping[str, Any], inputs: LossInputs, **groups: Tensor) -> tuple[float, Tensor]:
    """The loss, and its gradient by the log-probs."""
    leaf = inputs.logprobs.detach().clone().requires_grad_()
    loss = run_loss(name, settings, replace(inputs, logprobs=leaf), **groups).loss
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad

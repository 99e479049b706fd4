"""GRPO with an auxiliary cross-entropy on observation tokens (`grpo_echo_v1`; training-api.md, section 4.4).

    loss = grpo + aux_ce_weight * sum_i (sum_{t in O_i} -lp_it / |O_i|) / N * dp factor

O_i are the observation tokens of row i (`context.echo_observation_mask`, predict-next: tokens that the environment
wrote, for instance tool output), N is `echo_global_num_sequences`. The two masks are disjoint.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from drydock.errors import UserError
from drydock.losses.base import Denominators, LossInputs, LossOutput, Sent, need
from drydock.losses.grpo import grpo_loss
from drydock.losses.grpo_config import GrpoConfig, check_grpo

CONTRACT_VERSION = 1.0


class EchoConfig(GrpoConfig):
    """Settings of the `grpo_echo_v1` loss: those of `grpo` and three more."""

    aux_ce_weight: float = Field(ge=0.0)
    """Factor of the cross-entropy term. Required."""
    echo_global_num_sequences: float = Field(gt=0.0)
    """N: sequences over all calls and ranks of an optimizer step. Required."""
    echo_batch_denominator: Literal["all_sequences", "echo_bearing_sequences"] = "all_sequences"
    """Which sequences N counts: all, or only those with observation tokens. A call that holds more of them than N is
    refused."""


def check_echo(config: EchoConfig, sent: Sent) -> None:
    """Raises UserError for masks that overlap and a denominator that is smaller than the call."""
    check_grpo(config, sent)
    observed, trained = sent["echo_observation_mask"] != 0, sent["loss_mask"] != 0
    if (sent["echo_observation_mask"][observed] != 1).any():
        raise UserError("context.echo_observation_mask must hold only 0 and 1")
    if (observed & trained).any():
        row, column = (int(v[0]) for v in np.nonzero(observed & trained))
        raise UserError(
            f"context.echo_observation_mask and context.loss_mask are both set at row {row}, position {column}; a "
            "token is an observation or was sampled, never both"
        )
    bearing = observed.any(axis=1)
    counted = bearing if config.echo_batch_denominator == "echo_bearing_sequences" else bearing | trained.any(axis=1)
    if counted.sum() > config.echo_global_num_sequences:
        raise UserError(
            f"echo_global_num_sequences is {config.echo_global_num_sequences:g}, but this call alone holds "
            f"{int(counted.sum())} ({config.echo_batch_denominator})"
        )


def echo_loss(inputs: LossInputs, config: EchoConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch.

    Metrics beside those of `grpo`: `loss_term_rl`, `loss_term_aux` (weighted, they add up to the loss),
    `echo_tokens`, `echo_sequences`, `echo_nll_sum`, and `echo_contract_version`.
    """
    policy = grpo_loss(inputs, config, denominators)
    observed = need(inputs.observation_mask, "echo_observation_mask", "grpo_echo_v1")
    nll = -torch.where(observed != 0, inputs.logprobs, 0.0)
    counts = observed.sum(dim=1)
    rows = (nll.sum(dim=1) / counts.clamp(min=1.0)).sum()
    auxiliary = config.aux_ce_weight * rows * (denominators.scale / config.echo_global_num_sequences)
    loss = policy.loss + auxiliary
    with torch.no_grad():
        return LossOutput(
            loss=loss,
            means=policy.means,
            maxima=policy.maxima | {"echo_contract_version": counts.new_tensor(CONTRACT_VERSION)},
            minima=policy.minima,
            sums=policy.sums
            | {
                "loss_term_rl": policy.loss.detach(),
                "loss_term_aux": auxiliary.detach(),
                "echo_tokens": counts.sum(),
                "echo_sequences": (counts > 0).sum(),
                "echo_nll_sum": nll.detach().sum(),
            },
        )

"""DPPO: a trust region on the probability itself in the place of one on the ratio (arXiv 2602.04879).

    loss_it = -k r A + kl_tau (lp - old)^2,   r = exp(lp - old)
    k = 0 where the update would move a token further away that is already too far:
        A > 0, lp > old and D > delta_high,   or   A < 0, lp < old and D > delta_low;   else 1
    divergence tv:  D = |p - q|                                     p = exp(lp), q = exp(old)
               kl:  D = q log(q / p) + (1 - q) log((1 - q) / (1 - p))

A rare token may change its probability by a large factor, a frequent one may not: the ratio clip has it the other way
round. The squared term is prime-rl's pull towards the sampler (usual kl_tau 1e-3).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from drydock.losses.base import Denominators, LossInputs, LossOutput, need, need_binary
from drydock.losses.policy import PolicyConfig, policy_output
from drydock.losses.ratio import exp_clamped


class DppoConfig(PolicyConfig):
    """Settings of the `dppo` loss."""

    divergence: Literal["tv", "kl"] = "tv"
    """Binary total variation or binary KL of the sampled token's probability."""
    delta_low: float = Field(default=0.2, gt=0.0)
    """Largest divergence of tokens with a negative advantage that fell already."""
    delta_high: float = Field(default=0.2, gt=0.0)
    """Largest divergence of tokens with a positive advantage that rose already."""
    kl_tau: float = Field(default=0.0, ge=0.0)
    """Factor of the squared log ratio."""


def dppo_loss(inputs: LossInputs, config: DppoConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch. `clip_ratio` is the share of masked tokens; `divergence` the mean of D."""
    mask = need_binary(inputs.loss_mask, "dppo")
    trained = mask != 0
    old = need(inputs.old_logprobs, "old_log_probs_shifted", "dppo")
    advantages = torch.where(trained, need(inputs.advantages, "advantages", "dppo"), 0.0)
    difference = torch.where(trained, inputs.logprobs - old, 0.0)
    ratio = exp_clamped(difference)
    divergence = _divergence(inputs.logprobs.detach(), torch.where(trained, old, 0.0), config.divergence)
    rising = (advantages > 0) & (difference > 0) & (divergence > config.delta_high)
    falling = (advantages < 0) & (difference < 0) & (divergence > config.delta_low)
    gone = rising | falling
    terms = torch.where(gone, 0.0, -ratio * advantages) + config.kl_tau * difference**2
    return policy_output(
        terms,
        inputs,
        config,
        denominators,
        difference=difference,
        ratio=ratio,
        clipped=gone,
        means={"divergence": (mask * divergence).sum()},
    )


def _divergence(now: Tensor, old: Tensor, kind: str) -> Tensor:
    if kind == "tv":
        return (now.exp() - old.exp()).abs()
    tiny = torch.finfo(now.dtype).tiny
    rest_now = (-torch.expm1(now)).clamp(min=tiny)
    rest_old = (-torch.expm1(old)).clamp(min=tiny)
    return old.exp() * (old - now) + rest_old * (rest_old.log() - rest_now.log())

"""Policy gradient with the sampler's importance weight, tokens outside a trust range dropped (IcePop style).

    loss_it = -sg(r) A lp  where 1 - eps_clip <= r <= 1 + eps_clip_higher, else 0;   r = exp(lp - old)

Two policies only: no log-probs of the trainer before the update are needed. Source: GLM-5 report, section 4.1.2, and
SkyRL's `rollout_is`; IcePop is arXiv 2510.18855.
"""

import torch
from pydantic import Field

from drydock.losses.base import Denominators, LossInputs, LossOutput, need, need_binary
from drydock.losses.policy import PolicyConfig, policy_output
from drydock.losses.ratio import exp_clamped


class RolloutIsConfig(PolicyConfig):
    """Settings of the `rollout_is` loss."""

    eps_clip: float = Field(default=0.2, ge=0.0)
    """Lower distance from 1 that a ratio may have, and the upper one unless `eps_clip_higher` is given."""
    eps_clip_higher: float | None = Field(default=None, ge=0.0)
    """Upper distance."""


def rollout_is_loss(inputs: LossInputs, config: RolloutIsConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch. `clip_ratio` is the share of dropped tokens."""
    mask = need_binary(inputs.loss_mask, "rollout_is")
    trained = mask != 0
    old = need(inputs.old_logprobs, "old_log_probs_shifted", "rollout_is")
    advantages = torch.where(trained, need(inputs.advantages, "advantages", "rollout_is"), 0.0)
    difference = torch.where(trained, inputs.logprobs - old, 0.0)
    ratio = exp_clamped(difference.detach())
    upper = config.eps_clip if config.eps_clip_higher is None else config.eps_clip_higher
    outside = (ratio < 1.0 - config.eps_clip) | (ratio > 1.0 + upper)
    terms = torch.where(outside, 0.0, -ratio * advantages * inputs.logprobs)
    return policy_output(
        terms, inputs, config, denominators, difference=difference, ratio=ratio, clipped=outside & trained
    )

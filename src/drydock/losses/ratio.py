"""Importance ratios between the policy under training and the policy that its update is measured against.

Three policies (decoupled PPO, AReaL, arXiv 2505.24298, eq. 2): behaviour mu sampled the tokens (`old`), proximal is
the trust region's centre (`prox`), pi is under training (`lp`).

    token level     r_it = exp(lp_it - prox_it)                             GRPO, arXiv 2402.03300, eq. 3
    sequence level  r_it = r_i = exp(sum_t m (lp - prox) / sum_t m)         GSPO, arXiv 2507.18071, eq. 7
                    and A_it becomes the mean of A over the row's mask
    sequence_token  r_it = sg(r_i) exp(lp_it - sg(lp_it))                   GSPO-token, eq. 14: A stays per token
    behaviour       w_it = exp(prox_it - old_it), 0 where above behav_imp_weight_cap; detached

`prox_logp_method` says where prox comes from:

    recompute   the client's prox_logp_shifted; without it prox = old (two policies) and w = 1
    loglinear   prox = old + alpha (sg(lp) - old), alpha = clamp((v - 1 - v_b) / (v - v_b), 0, 1), and 0 where
                v <= v_b: v is current_version, v_b the version that sampled the token (AReaL)
    metrics     as recompute; what loglinear would give is reported beside it

Without old log-probs, old = sg(lp): the ratio is 1 and the gradient that of plain policy gradient. Log ratios are
clamped to +-20 before the exponential, so that a stray token cannot overflow it.
"""

# ruff: noqa: F722
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from drydock.losses.base import LossInputs, need

MAX_LOG_RATIO = 20.0

ProxMethod = Literal["recompute", "loglinear", "metrics"]
RatioLevel = Literal["token", "sequence", "sequence_token"]


def exp_clamped(log_ratio: Tensor) -> Tensor:
    """exp of a log ratio clamped to +-20."""
    return torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def row_mean(values: Float[Tensor, "rows seq"], mask: Float[Tensor, "rows seq"]) -> Float[Tensor, "rows seq"]:
    """Mean over each row's mask, repeated along the row; 0 for an empty row."""
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1.0)
    return ((values * mask).sum(dim=1, keepdim=True) / lengths).expand_as(values)


def behaviour(inputs: LossInputs) -> Float[Tensor, "rows seq"]:
    """Log-probs of the behaviour policy; those of the present policy, detached, where none were sent."""
    return inputs.logprobs.detach() if inputs.old_logprobs is None else inputs.old_logprobs


def loglinear_prox(inputs: LossInputs, current_version: int) -> Float[Tensor, "rows seq"]:
    """Proximal log-probs interpolated between behaviour and present policy by version; detached."""
    old = behaviour(inputs)
    behind = current_version - need(inputs.versions, "versions", "prox_logp_method 'loglinear'").to(old.dtype)
    alpha = torch.where(behind > 0, (behind - 1.0) / behind.clamp(min=1.0), 0.0).clamp(0.0, 1.0)
    return old + alpha * (inputs.logprobs.detach() - old)


def proximal(inputs: LossInputs, method: ProxMethod, current_version: int | None) -> Float[Tensor, "rows seq"]:
    """Proximal log-probs; see the module."""
    if method == "loglinear":
        return loglinear_prox(inputs, current_version or 0)
    return behaviour(inputs) if inputs.prox_logprobs is None else inputs.prox_logprobs

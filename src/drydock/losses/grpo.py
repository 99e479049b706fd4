"""The clipped policy-gradient surrogate with a token ratio (GRPO, PPO) or a sequence ratio (GSPO).

    token:     r_it = exp(lp_it - old_it)                          GRPO, arXiv 2402.03300, eq. 3
    sequence:  r_it = s_i = exp(sum_t m (lp - old) / sum_t m)      GSPO, arXiv 2507.18071, eq. 7
               and A_it becomes the mean of A over the row's mask
    loss_it  = max(-A r, -A clip(r, 1 - eps_clip, 1 + eps_clip_higher))
    c_clip:    loss_it = min(loss_it, c_clip |A|)                  dual clip, arXiv 1912.09729, eq. 5

Without old log-probs, old = stop_grad(lp): the ratio is 1 and the gradient that of plain policy gradient.
The log ratio is clamped to +-20 before the exponential, so that a stray token cannot overflow it.
"""

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from drydock.errors import UserError
from drydock.losses.aggregation import Aggregation, aggregate
from drydock.losses.base import Denominators, LossInputs, LossOutput

MAX_LOG_RATIO = 20.0


class GrpoConfig(BaseModel):
    """Settings of the `grpo` loss; names as on the wire."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    eps_clip: float = Field(default=0.2, ge=0.0)
    """Lower clip distance, and the upper one unless `eps_clip_higher` is given (GSPO: 3e-4)."""
    eps_clip_higher: float | None = Field(default=None, ge=0.0)
    """Upper clip distance (DAPO: 0.28, GSPO: 4e-4)."""
    c_clip: float | None = Field(default=None, gt=1.0)
    """Dual clip: bound of a token's loss in units of |A|; off when None (usual value 3)."""
    importance_sampling_level: str = Field(default="token", pattern="^(token|sequence)$")
    """`token` for GRPO, `sequence` for GSPO."""
    loss_agg_mode: Aggregation = Aggregation.TOKEN_MEAN
    """How per-token terms become one number; see `drydock.losses.aggregation`."""
    batch_num_tokens: float | None = Field(default=None, gt=0.0)
    """Denominator of token-mean over all calls of an optimizer step; counted per call when None."""
    global_batch_size: float | None = Field(default=None, gt=0.0)
    """Denominator of the seq-mean-* modes over all calls of an optimizer step; counted per call when None."""
    dp_size: int | None = Field(default=None, ge=1)
    """Number of data-parallel ranks. The engine stamps its own number, whatever the client says."""


def grpo_loss(inputs: LossInputs, config: GrpoConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch; see the module for the formula.

    Metrics: `approx_kl` mean of lp - old (positive when the policy became more certain of the sampled tokens),
    `importance_weight` mean ratio, `clip_ratio` share of tokens where a clip binds, `entropy` mean of -lp,
    `logprob_diff_mean` and `logprob_diff_max` of |lp - old|.

    Raises UserError when advantages are missing or the mask is not binary.
    """
    if inputs.advantages is None:
        raise UserError("grpo: context.advantages is missing; send one [B, T] tensor, predict-next aligned")
    mask = inputs.loss_mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise UserError("grpo: context.loss_mask must hold only 0 and 1; scale the advantages to weight tokens")
    old = inputs.logprobs.detach() if inputs.old_logprobs is None else inputs.old_logprobs
    trained = mask != 0
    difference = torch.where(trained, inputs.logprobs - old, 0.0)
    advantages = torch.where(trained, inputs.advantages, 0.0)
    log_ratio = difference
    if config.importance_sampling_level == "sequence":
        lengths = mask.sum(dim=1, keepdim=True).clamp(min=1.0)
        log_ratio = (difference.sum(dim=1, keepdim=True) / lengths).expand_as(difference)
        advantages = (advantages.sum(dim=1, keepdim=True) / lengths).expand_as(difference)
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    upper = config.eps_clip if config.eps_clip_higher is None else config.eps_clip_higher
    plain = -advantages * ratio
    terms = torch.maximum(plain, -advantages * ratio.clamp(1.0 - config.eps_clip, 1.0 + upper))
    if config.c_clip is not None:
        terms = torch.minimum(terms, config.c_clip * advantages.abs())
    loss = aggregate(terms, mask, config.loss_agg_mode, denominators, inputs.row_weights)
    with torch.no_grad():
        return LossOutput(
            loss=loss,
            means=_means(inputs, difference, ratio, terms != plain),
            maxima={"logprob_diff_max": _peak(difference)},
        )


def _means(inputs: LossInputs, difference: Tensor, ratio: Tensor, clipped: Tensor) -> dict[str, Tensor]:
    mask = inputs.loss_mask
    return {
        "approx_kl": (mask * difference).sum(),
        "importance_weight": (mask * ratio).sum(),
        "clip_ratio": (mask * clipped).sum(),
        "entropy": -(mask * inputs.logprobs).sum(),
        "logprob_diff_mean": (mask * difference.abs()).sum(),
    }


def _peak(difference: Tensor) -> Tensor:
    return difference.detach().abs().max() if difference.numel() else difference.new_zeros(())

"""KL to a reference policy, estimated per sampled token (Schulman, joschu.net/blog/kl-approx.html).

With d = ref - lp:

    k1, kl            -d                     unbiased value; its gradient is zero in expectation
    abs               |d|
    k2, mse           d^2 / 2                gradient: that of the KL, on-policy
    k3, low_var_kl    exp(d) - d - 1         unbiased, never negative (GRPO, arXiv 2402.03300, eq. 4);
                                             d is clamped to +-20, the result to +-10
    kl_importance_weighted: times r = exp(lp - old), whose gradient counts (DeepSeek-V3.2, arXiv 2512.02556):
                                             an unbiased gradient also off-policy

    loss += kl_loss_coef * aggregate(kl)
"""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from drydock.errors import UserError
from drydock.losses.base import Sent
from drydock.losses.ratio import MAX_LOG_RATIO

KlType = Literal["k1", "kl", "abs", "k2", "mse", "k3", "low_var_kl"]
MAX_KL = 10.0


class KlConfig(BaseModel):
    """Keys of the KL term."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    use_kl_loss: bool = False
    """Add a KL term to `context.ref_log_probs_shifted`. Off, the KL is only reported where those are sent."""
    kl_loss_coef: float = Field(default=0.001, ge=0.0)
    """Factor of the KL term."""
    kl_loss_type: KlType = "low_var_kl"
    """Estimator: k1 (kl), abs, k2 (mse), k3 (low_var_kl)."""
    kl_importance_weighted: bool = False
    """Weight the KL by the ratio to the behaviour policy, for an unbiased gradient off-policy."""


def check_kl(config: KlConfig, sent: Sent) -> None:
    """Raises UserError when the KL term has no reference, or an option of it stands alone."""
    if config.use_kl_loss and "ref_log_probs_shifted" not in sent:
        raise UserError("use_kl_loss needs context.ref_log_probs_shifted, the reference model's log-probs [B, T]")
    if config.kl_importance_weighted and not config.use_kl_loss:
        raise UserError("kl_importance_weighted has no effect without use_kl_loss; set both or neither")


def kl_terms(logprobs: Tensor, reference: Tensor, kind: KlType) -> Tensor:
    """Per-token estimate of KL(policy || reference)."""
    difference = reference - logprobs
    if kind in ("k1", "kl"):
        return -difference
    if kind == "abs":
        return difference.abs()
    if kind in ("k2", "mse"):
        return 0.5 * difference**2
    difference = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (torch.exp(difference) - difference - 1.0).clamp(-MAX_KL, MAX_KL)

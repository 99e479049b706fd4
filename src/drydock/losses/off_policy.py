"""Corrections for the gap between the policy that sampled (mu) and the trainer's copy of the same policy (pi_old).

rho_it = exp(pi_old - mu), detached, with mu = `old_log_probs_shifted` and pi_old = `prox_logp_shifted`; without the
latter the policy under training stands in for pi_old, and only masks are possible.

    tis_ratio_type          token     weight min(rho_it, token_tis_ratio_clip_high)
                            sequence  weight min(prod_t rho_it, sequence_tis_ratio_clip_high)
                            (truncated importance sampling, Yao et al., fengyao.notion.site/off-policy-rl)
    token_mask_is_threshold_low/high          drop tokens with rho outside (IcePop, arXiv 2510.18855)
    sequence_mask_metric    geometric         keep a row iff geo_mask_low <= exp(mean log rho) <= geo_mask_high
                            product           keep a row iff product_mask_low <= prod rho <= product_mask_high
    outlier_token_is_threshold_low/high       drop a row in which any rho is outside
    off_policy_sequence_threshold  delta      drop tokens with A < 0 in rows with mean(mu - lp) > delta
                                              (DeepSeek-V3.2, arXiv 2512.02556)

A row stands for a sequence. Dropped tokens keep counting in the loss's denominators, so the loss of the others does
not grow. Long agent trajectories want the geometric mask: a product over 10,000 tokens is never near 1. Key names
and defaults are those of SkyRL's `trainer.algorithm.off_policy_correction`.
"""

# ruff: noqa: F722
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from drydock.losses.ratio import exp_clamped, row_mean


class OffPolicyCorrection(BaseModel):
    """The block `off_policy_correction`; everything is off by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tis_ratio_type: Literal["token", "sequence"] | None = None
    """Truncated importance sampling per token or per row; takes the place of the plain behaviour weight."""
    token_tis_ratio_clip_high: float = Field(default=2.0, gt=0.0)
    """Cap of the token weight (usual: 1.5 to 5)."""
    sequence_tis_ratio_clip_high: float = Field(default=5.0, gt=0.0)
    """Cap of the sequence weight (usual: 2 to 10)."""
    token_mask_is_threshold_low: float | None = Field(default=None, ge=0.0)
    """Drop tokens with a smaller ratio (IcePop: 0.5)."""
    token_mask_is_threshold_high: float | None = Field(default=None, gt=0.0)
    """Drop tokens with a larger ratio (IcePop: 2 to 5)."""
    sequence_mask_metric: Literal["geometric", "product"] | None = None
    """Drop whole rows by the geometric mean or the product of their ratios."""
    geo_mask_low: float = Field(default=0.99, ge=0.0)
    """Smallest geometric mean that stays."""
    geo_mask_high: float = Field(default=1.01, gt=0.0)
    """Largest geometric mean that stays."""
    product_mask_low: float = Field(default=0.5, ge=0.0)
    """Smallest product that stays."""
    product_mask_high: float = Field(default=2.0, gt=0.0)
    """Largest product that stays."""
    outlier_token_is_threshold_low: float | None = Field(default=None, ge=0.0)
    """Drop rows with any smaller token ratio (usual: 1e-4)."""
    outlier_token_is_threshold_high: float | None = Field(default=None, gt=0.0)
    """Drop rows with any larger token ratio (usual: 100)."""
    off_policy_sequence_threshold: float | None = Field(default=None, ge=0.0)
    """delta: drop tokens with a negative advantage in rows that the policy has left behind."""

    @model_validator(mode="after")
    def _ranges_are_ranges(self) -> "OffPolicyCorrection":
        pairs = {
            "token_mask_is_threshold": (self.token_mask_is_threshold_low, self.token_mask_is_threshold_high),
            "geo_mask": (self.geo_mask_low, self.geo_mask_high),
            "product_mask": (self.product_mask_low, self.product_mask_high),
            "outlier_token_is_threshold": (self.outlier_token_is_threshold_low, self.outlier_token_is_threshold_high),
        }
        for name, (low, high) in pairs.items():
            if low is not None and high is not None and low >= high:
                raise ValueError(f"{name}_low {low} must be below {name}_high {high}")
        return self


@dataclass(frozen=True, slots=True)
class Correction:
    """weight: factor of each token's policy loss, 0 where dropped. keep: 1 where not dropped. Both detached.

    means, maxima, minima: metrics as in `LossOutput`.
    """

    weight: Float[Tensor, "rows seq"]
    keep: Float[Tensor, "rows seq"]
    means: dict[str, Tensor]
    maxima: dict[str, Tensor]
    minima: dict[str, Tensor]


@torch.no_grad()
def correct(
    trainer: Float[Tensor, "rows seq"],
    sampler: Float[Tensor, "rows seq"],
    current: Float[Tensor, "rows seq"],
    advantages: Float[Tensor, "rows seq"],
    mask: Float[Tensor, "rows seq"],
    config: OffPolicyCorrection,
) -> Correction:
    """Weights and masks from log-probs of pi_old (`trainer`), mu (`sampler`) and the policy under training.

    Metrics: `is_ratio` mean of rho, `is_ratio_max`, `is_ratio_min`; shares of trained tokens: `tis_capped`,
    `is_masked_token` (IcePop), `is_masked_sequence`, `is_masked_outlier`, `is_masked_off_policy`, `is_masked` (any).
    """
    trained = mask != 0
    log_rho = torch.where(trained, trainer - sampler, 0.0)
    rho = exp_clamped(log_rho)
    sequence_rho = exp_clamped(log_rho.sum(dim=1, keepdim=True)).expand_as(rho)
    weight = torch.ones_like(rho)
    dropped: dict[str, Tensor] = {}
    means = {"is_ratio": (mask * rho).sum()}
    if config.tis_ratio_type is not None:
        token = config.tis_ratio_type == "token"
        uncapped = rho if token else sequence_rho
        cap = config.token_tis_ratio_clip_high if token else config.sequence_tis_ratio_clip_high
        weight = uncapped.clamp(max=cap)
        means["tis_capped"] = (mask * (uncapped > cap)).sum()
    low, high = config.token_mask_is_threshold_low, config.token_mask_is_threshold_high
    if low is not None or high is not None:
        dropped["is_masked_token"] = _outside(rho, low, high)
    if config.sequence_mask_metric == "geometric":
        mean = exp_clamped(row_mean(log_rho, mask))
        dropped["is_masked_sequence"] = _outside(mean, config.geo_mask_low, config.geo_mask_high)
    elif config.sequence_mask_metric == "product":
        dropped["is_masked_sequence"] = _outside(sequence_rho, config.product_mask_low, config.product_mask_high)
    low, high = config.outlier_token_is_threshold_low, config.outlier_token_is_threshold_high
    if low is not None or high is not None:
        outliers = (_outside(rho, low, high) & trained).any(dim=1, keepdim=True)
        dropped["is_masked_outlier"] = outliers.expand_as(rho)
    if config.off_policy_sequence_threshold is not None:
        left_behind = row_mean(torch.where(trained, sampler - current, 0.0), mask)
        dropped["is_masked_off_policy"] = (left_behind > config.off_policy_sequence_threshold) & (advantages < 0)
    keep = torch.ones_like(rho)
    for name, gone in dropped.items():
        keep = torch.where(gone, 0.0, keep)
        means[name] = (mask * gone).sum()
    if dropped:
        means["is_masked"] = (mask * (1.0 - keep)).sum()
    extremes = rho[trained]
    found = bool(extremes.numel())
    return Correction(
        weight=weight * keep,
        keep=keep,
        means=means,
        maxima={"is_ratio_max": extremes.max()} if found else {},
        minima={"is_ratio_min": extremes.min()} if found else {},
    )


def _outside(values: Tensor, low: float | None, high: float | None) -> Tensor:
    below = values < low if low is not None else torch.zeros_like(values, dtype=torch.bool)
    return below if high is None else below | (values > high)

"""Direct preference optimization on pairs of rows (arXiv 2305.18290, eq. 7).

    h = beta (sum_t m (lp - ref) of the chosen row - the same of the rejected row)
    sigmoid:  loss = -(1 - label_smoothing) log sigma(h) - label_smoothing log sigma(-h)
              label_smoothing is the share of wrong labels that is expected (conservative DPO)
    ipo:      loss = (h / beta - 1 / (2 beta))^2                               arXiv 2310.12036, eq. 17
    length_normalized: each row's sum becomes its mean over the mask            (sigmoid: arXiv 2405.14734's idea)
    nll_coef: loss += nll_coef * mean -lp of the chosen row                     arXiv 2404.19733, eq. 1

The call's loss is the mean over its pairs (or the sum over `global_batch_size`, counted in pairs). Pairs are named by
`context.pair_ids` [rows], the better row of each by `context.chosen` [rows] (1, the other 0); the order of rows means
nothing. `context.ref_log_probs_shifted` comes from a frozen reference (a log-probability sub-job).
"""

from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn.functional import logsigmoid

from drydock.errors import UserError
from drydock.losses.base import Denominators, LossInputs, LossOutput, Sent, need, need_binary


class DpoConfig(BaseModel):
    """Settings of the `dpo` loss."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    beta: float = Field(default=0.1, gt=0.0)
    """Strength of the pull towards the reference."""
    loss_type: Literal["sigmoid", "ipo"] = "sigmoid"
    """DPO's own loss, or IPO's squared one."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Share of pairs whose labels are expected to be wrong."""
    length_normalized: bool = False
    """Mean over a row's tokens in the place of the sum."""
    nll_coef: float = Field(default=0.0, ge=0.0)
    """Factor of an added cross-entropy on the chosen row."""
    global_batch_size: float | None = Field(default=None, gt=0.0)
    """Denominator over all calls of an optimizer step, in pairs; counted per call when None."""
    dp_size: int | None = Field(default=None, ge=1)
    """Number of data-parallel ranks. The engine stamps its own number, whatever the client says."""

    @model_validator(mode="after")
    def _options_agree(self) -> "DpoConfig":
        if self.loss_type == "ipo" and self.label_smoothing:
            raise ValueError("label_smoothing has no effect with loss_type 'ipo'; leave one of them out")
        return self


def check_dpo(config: DpoConfig, sent: Sent) -> None:
    """Raises UserError unless every pair id has one chosen and one rejected row."""
    ids, chosen = sent["pair_ids"], sent["chosen"]
    if not np.isin(chosen, (0, 1)).all():
        raise UserError("context.chosen must hold 1 for the better row of a pair and 0 for the other")
    for pair in np.unique(ids):
        won = chosen[ids == pair]
        if len(won) != 2 or won.sum() != 1:
            raise UserError(
                f"pair {int(pair)} of context.pair_ids has {int(won.sum())} chosen and {int((won == 0).sum())} "
                "rejected rows; it must have one of each"
            )


def dpo_loss(inputs: LossInputs, config: DpoConfig, denominators: Denominators) -> LossOutput:
    """Loss of a whole call: both rows of every pair must be among `inputs`.

    Metrics, means over pairs: `rewards_chosen` and `rewards_rejected` (beta times the log ratio to the reference),
    `rewards_margin`, `rewards_accuracy` (share of pairs with a positive margin), `loss_term_nll`.
    """
    mask = need_binary(inputs.loss_mask, "dpo")
    trained = mask != 0
    reference = need(inputs.ref_logprobs, "ref_log_probs_shifted", "dpo")
    ids, chosen = need(inputs.pair_ids, "pair_ids", "dpo"), need(inputs.chosen, "chosen", "dpo")
    lengths = mask.sum(dim=1).clamp(min=1.0)
    scores = torch.where(trained, inputs.logprobs - reference, 0.0).sum(dim=1)
    if config.length_normalized:
        scores = scores / lengths
    better, worse = _pairs(ids, chosen)
    margin = scores[better] - scores[worse]
    if config.loss_type == "ipo":
        per_pair = (margin - 1.0 / (2.0 * config.beta)) ** 2
    else:
        h = config.beta * margin
        per_pair = -(1.0 - config.label_smoothing) * logsigmoid(h) - config.label_smoothing * logsigmoid(-h)
    share = denominators.scale / (config.global_batch_size or max(len(better), 1))
    loss = per_pair.sum() * share
    sums: dict[str, Tensor] = {}
    if config.nll_coef:
        nll = -(mask * inputs.logprobs).sum(dim=1) / lengths
        part = config.nll_coef * nll[better].sum() * share
        loss = loss + part
        sums["loss_term_nll"] = part.detach()
    with torch.no_grad():
        pairs = max(len(better), 1)
        sums |= {
            "rewards_chosen": config.beta * scores[better].sum() / pairs,
            "rewards_rejected": config.beta * scores[worse].sum() / pairs,
            "rewards_margin": config.beta * margin.sum() / pairs,
            "rewards_accuracy": (margin > 0).to(margin.dtype).sum() / pairs,
        }
        return LossOutput(loss=loss, means={"entropy": -(mask * inputs.logprobs).sum()}, sums=sums)


def _pairs(ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Row indices of the chosen and the rejected rows, pair by pair."""
    order = torch.argsort(ids, stable=True)
    won = chosen[order] != 0
    return order[won], order[~won]


def couples_rows(config: DpoConfig) -> bool:
    """A pair's rows need each other."""
    return True

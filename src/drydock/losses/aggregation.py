"""From per-token loss terms to one number, independent of padding, row order and micro-batching.

Modes, with v the per-token terms, m the mask, w_i the row weight (default 1), N tokens and R rows of the call
(names as in the Cortex Training wire; reference/training-api.md, section 4.4):

    token-mean               sum_it m v / N                      DAPO, arXiv 2503.14476, eq. 8
    seq-mean-token-mean      sum_i w_i (sum_t m v / sum_t m) / R  GRPO, arXiv 2402.03300, eq. 3; GSPO
    seq-mean-token-sum       sum_i w_i (sum_t m v) / R
    seq-mean-token-sum-norm  sum_i w_i (sum_t m v) / (R L)       Dr.GRPO, arXiv 2503.20783
    prompt-mean              sum_i (sum_t m v) / (n_i P)         mean over prompts of the token mean of all responses
                             sum_i w_i (sum_t m v) / n_i          where row weights are sent

L is `loss_scale_factor`, or the padded row width that the client sent: without the factor, in that mode and only
there, padding is part of the objective. n_i counts the trained tokens of all rows of row i's prompt (by
`context.prompt_group_ids` in this call, or as sent in `context.prompt_token_counts`), P the prompts of the call.

`row_weights` exist because a rollout may be cut into several rows: with weights that add up to 1 over the rows of
a rollout, it counts once. They have no effect on token-mean, which is invariant to such cuts by itself. In
prompt-mean they take the place of 1 / P, so that several calls of a step can make one mean.
"""

# ruff: noqa: F722, F821
from enum import StrEnum

import torch
from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from drydock.errors import UserError
from drydock.losses.base import Denominators, LossInputs, Sent, need


class Aggregation(StrEnum):
    """Values of `loss_agg_mode`."""

    TOKEN_MEAN = "token-mean"
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"
    PROMPT_MEAN = "prompt-mean"


class AggregationConfig(BaseModel):
    """Keys of every loss that aggregates terms over tokens and rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss_agg_mode: Aggregation = Aggregation.TOKEN_MEAN
    """How per-token terms become one number; see `drydock.losses.aggregation`."""
    loss_scale_factor: float | None = Field(default=None, gt=0.0)
    """Constant L of seq-mean-token-sum-norm (Dr.GRPO: the longest completion); the padded row width when None."""
    batch_num_tokens: float | None = Field(default=None, gt=0.0)
    """Denominator of token-mean over all calls of an optimizer step; counted per call when None."""
    global_batch_size: float | None = Field(default=None, gt=0.0)
    """Denominator of the seq-mean-* modes over all calls of an optimizer step; counted per call when None."""
    dp_size: int | None = Field(default=None, ge=1)
    """Number of data-parallel ranks. The engine stamps its own number, whatever the client says."""

    @model_validator(mode="after")
    def _factor_has_its_mode(self) -> "AggregationConfig":
        if self.loss_scale_factor is not None and self.loss_agg_mode is not Aggregation.SEQ_MEAN_TOKEN_SUM_NORM:
            raise ValueError(
                f"loss_scale_factor has no effect with loss_agg_mode {self.loss_agg_mode.value!r}; "
                "use seq-mean-token-sum-norm or leave it out"
            )
        return self


def check_aggregation(config: AggregationConfig, sent: Sent) -> None:
    """Raises UserError when prompt-mean lacks the context tensors (`sent`, wire names) that say what a prompt is."""
    if config.loss_agg_mode is not Aggregation.PROMPT_MEAN or "prompt_group_ids" in sent:
        return
    if not {"prompt_token_counts", "sequence_loss_weights"} <= sent.keys():
        raise UserError(
            "loss_agg_mode 'prompt-mean' needs context.prompt_group_ids, or context.prompt_token_counts together "
            "with context.sequence_loss_weights"
        )


def count_denominators(
    loss_mask: Float[Tensor, "rows seq"],
    row_weights: Float[Tensor, "rows"] | None = None,
    *,
    batch_num_tokens: float | None = None,
    global_batch_size: float | None = None,
    dp_size: int | None = None,
    prompt_group_ids: Int[Tensor, "rows"] | None = None,
) -> Denominators:
    """Denominators of a forward-backward call from all of its rows; a value that the client gave wins.

    Without `global_batch_size`, rows are counted by their weights (a rollout cut into two rows of weight 1/2 is
    one), and rows whose mask is empty do not count. Zero counts become 1, so that an empty call has loss 0.
    """
    mask = loss_mask.double()
    tokens = float(mask.sum()) if batch_num_tokens is None else float(batch_num_tokens)
    trained = (mask != 0).any(dim=1)
    if global_batch_size is None:
        counted = trained.double()
        rows = float(counted.sum() if row_weights is None else (counted * row_weights.double()).sum())
    else:
        rows = float(global_batch_size)
    prompts = 0 if prompt_group_ids is None else len(torch.unique(prompt_group_ids[trained]))
    return Denominators(
        tokens=tokens or 1.0,
        rows=rows or 1.0,
        prompts=float(prompts or 1),
        row_width=max(loss_mask.shape[1], 1),
        scale=float(dp_size or 1),
    )


def count_prompt_tokens(
    loss_mask: Float[Tensor, "rows seq"], prompt_group_ids: Int[Tensor, "rows"]
) -> Float[Tensor, "rows"]:
    """For each row of a call, the trained tokens of all rows that have its prompt id."""
    _, group = torch.unique(prompt_group_ids, return_inverse=True)
    tokens = loss_mask.sum(dim=1)
    return tokens.new_zeros(len(tokens)).index_add(0, group, tokens)[group]


def aggregate(
    values: Float[Tensor, "rows seq"],
    inputs: LossInputs,
    mode: Aggregation,
    denominators: Denominators,
    *,
    loss_scale_factor: float | None = None,
) -> Tensor:
    """The micro-batch's share of the call's aggregate of `values`: a scalar, additive over micro-batches.

    Of `inputs` it reads the mask, the row weights and, for prompt-mean, the prompts' token counts.
    """
    mask, weights = inputs.loss_mask, inputs.row_weights
    weighted = values * mask
    if mode is Aggregation.TOKEN_MEAN:
        return weighted.sum() * (denominators.scale / denominators.tokens)
    row_terms = weighted.sum(dim=1)
    tiny = torch.finfo(mask.dtype).tiny
    if mode is Aggregation.SEQ_MEAN_TOKEN_MEAN:
        row_terms = row_terms / mask.sum(dim=1).clamp(min=tiny)
    if weights is not None:
        row_terms = row_terms * weights
    if mode is Aggregation.PROMPT_MEAN:
        counts = need(inputs.prompt_tokens, "prompt_group_ids", "loss_agg_mode 'prompt-mean'")
        prompts = 1.0 if weights is not None else denominators.prompts
        return (row_terms / counts.clamp(min=tiny)).sum() * (denominators.scale / prompts)
    total = row_terms.sum() * (denominators.scale / denominators.rows)
    if mode is Aggregation.SEQ_MEAN_TOKEN_SUM_NORM:
        return total / (loss_scale_factor or denominators.row_width)
    return total

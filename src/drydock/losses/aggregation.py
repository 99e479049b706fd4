"""From per-token loss terms to one number, independent of padding, row order and micro-batching.

Modes, with v the per-token terms, m the mask, w_i the row weight (default 1), N tokens and R rows of the call
(names as in the Cortex Training wire; reference/training-api.md, section 4.4):

    token-mean               sum_it m v / N                      DAPO, arXiv 2503.14476, eq. 8
    seq-mean-token-mean      sum_i w_i (sum_t m v / sum_t m) / R  GRPO, arXiv 2402.03300, eq. 3; GSPO
    seq-mean-token-sum       sum_i w_i (sum_t m v) / R
    seq-mean-token-sum-norm  sum_i w_i (sum_t m v) / (R T)       Dr.GRPO, arXiv 2503.20783

T is the padded row width that the client sent: in the last mode, and only there, padding is part of the
objective, so a client that wants Dr.GRPO's constant pads every call to the same width.

`row_weights` exist because a rollout may be cut into several rows: with weights that add up to 1 over the rows of
a rollout, it counts once. They have no effect on token-mean, which is invariant to such cuts by itself.
"""

# ruff: noqa: F722, F821
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from drydock.losses.base import Denominators


class Aggregation(StrEnum):
    """Values of `loss_agg_mode`."""

    TOKEN_MEAN = "token-mean"
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"


def count_denominators(
    loss_mask: Float[Tensor, "rows seq"],
    row_weights: Float[Tensor, "rows"] | None = None,
    *,
    batch_num_tokens: float | None = None,
    global_batch_size: float | None = None,
    dp_size: int | None = None,
) -> Denominators:
    """Denominators of a forward-backward call from all of its rows; a value that the client gave wins.

    Without `global_batch_size`, rows are counted by their weights (a rollout cut into two rows of weight 1/2 is
    one), and rows whose mask is empty do not count. Zero counts become 1, so that an empty call has loss 0.
    """
    mask = loss_mask.double()
    tokens = float(mask.sum()) if batch_num_tokens is None else float(batch_num_tokens)
    if global_batch_size is None:
        trained = (mask != 0).any(dim=1).double()
        rows = float(trained.sum() if row_weights is None else (trained * row_weights.double()).sum())
    else:
        rows = float(global_batch_size)
    return Denominators(
        tokens=tokens or 1.0, rows=rows or 1.0, row_width=max(loss_mask.shape[1], 1), scale=float(dp_size or 1)
    )


def aggregate(
    values: Float[Tensor, "rows seq"],
    loss_mask: Float[Tensor, "rows seq"],
    mode: Aggregation,
    denominators: Denominators,
    row_weights: Float[Tensor, "rows"] | None = None,
) -> Tensor:
    """The micro-batch's share of the call's aggregate of `values`: a scalar, additive over micro-batches."""
    weighted = values * loss_mask
    if mode is Aggregation.TOKEN_MEAN:
        return weighted.sum() * (denominators.scale / denominators.tokens)
    row_terms = weighted.sum(dim=1)
    if mode is Aggregation.SEQ_MEAN_TOKEN_MEAN:
        row_terms = row_terms / loss_mask.sum(dim=1).clamp(min=torch.finfo(loss_mask.dtype).tiny)
    if row_weights is not None:
        row_terms = row_terms * row_weights
    total = row_terms.sum() * (denominators.scale / denominators.rows)
    return total / denominators.row_width if mode is Aggregation.SEQ_MEAN_TOKEN_SUM_NORM else total

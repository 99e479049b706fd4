"""What every loss takes and gives back.

A loss is a pure function of the rows of one micro-batch. It never learns how the rows of a forward-backward call
were cut into micro-batches: the denominators of every mean are handed in, so the sum of the micro-batches' losses
(and of their gradients) is the loss (and gradient) of the whole call.

All per-token tensors are predict-next aligned: `x[:, i]` belongs to `input_ids[:, i + 1]`.
"""

# ruff: noqa: F722
from dataclasses import dataclass, field
from typing import Any, Protocol

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Rows of one micro-batch, predict-next aligned.

    logprobs: natural log-probability of the next token, with gradient; 0 where `loss_mask` is 0.
    loss_mask: weight of each position (0 or 1 for policy losses, any weight >= 0 for cross-entropy).
    advantages, old_logprobs: as sent by the client; None where the loss does not need them.
    row_weights: factor of each row in the seq-mean-* modes; None means 1.
    """

    logprobs: Float[Tensor, "rows seq"]
    loss_mask: Float[Tensor, "rows seq"]
    advantages: Float[Tensor, "rows seq"] | None = None
    old_logprobs: Float[Tensor, "rows seq"] | None = None
    row_weights: Float[Tensor, "rows"] | None = None  # noqa: F821


@dataclass(frozen=True, slots=True)
class Denominators:
    """What the means of one forward-backward call divide by, all micro-batches together.

    tokens: weight of all trained positions (or the client's `batch_num_tokens`).
    rows: number of rows that train anything, counted with their row weights (or `global_batch_size`).
    row_width: padded width of the rows as the client sent them.
    scale: factor on the loss; the number of data-parallel ranks whose gradients are averaged.
    """

    tokens: float
    rows: float
    row_width: int
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A micro-batch's share of the loss of its call, and what is reported about it.

    loss: scalar with gradient.
    means: name -> sum over trained positions; the caller divides by their number over the whole call.
    maxima: name -> maximum over trained positions.
    """

    loss: Tensor
    means: dict[str, Tensor] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)


class LossFunction(Protocol):
    """A loss of the registry; `config` is an instance of the model registered with it."""

    def __call__(self, inputs: LossInputs, config: Any, denominators: Denominators) -> LossOutput: ...

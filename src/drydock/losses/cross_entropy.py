"""Next-token cross-entropy over weighted positions (supervised fine-tuning).

    loss = sum_it w_it * (-lp_it) / (batch_num_tokens or sum_it w_it)

w is `context.loss_mask`, any weight >= 0. Source: the `causal_cross_entropy` entry of the Cortex Training wire
(reference/training-api.md, section 4.4).
"""

import torch
from pydantic import BaseModel, ConfigDict, Field

from drydock.losses.aggregation import Aggregation, aggregate
from drydock.losses.base import Denominators, LossInputs, LossOutput


class CrossEntropyConfig(BaseModel):
    """Settings of the `causal_cross_entropy` loss; names as on the wire."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_num_tokens: float | None = Field(default=None, gt=0.0)
    """Denominator over all calls of an optimizer step; the weights of the call are summed when None."""
    dp_size: int | None = Field(default=None, ge=1)
    """Number of data-parallel ranks. The engine stamps its own number, whatever the client says."""


def cross_entropy_loss(inputs: LossInputs, config: CrossEntropyConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch. Metrics: `entropy`, the unweighted mean of -lp over positions with weight."""
    loss = aggregate(-inputs.logprobs, inputs, Aggregation.TOKEN_MEAN, denominators)
    with torch.no_grad():
        return LossOutput(loss=loss, means={"entropy": -inputs.logprobs[inputs.loss_mask != 0].sum()})

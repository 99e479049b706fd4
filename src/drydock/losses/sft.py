"""Supervised fine-tuning on `kwargs.labels`: the wire's `sft` and `sft_ce`, and a call without a loss name.

    loss = sum_it -lp_it / (batch_num_tokens or the number of labels that are not -100)

Both names compute the same number (on the wire one is the model's own loss, the other an explicit cross-entropy).
How labels are aligned with `input_ids` is settled in `drydock.engine.labels`.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from drydock.losses.aggregation import Aggregation, aggregate
from drydock.losses.base import Denominators, LossInputs, LossOutput

LabelAlignment = Literal["own-token", "predict-next"]


class SftConfig(BaseModel):
    """Settings of `sft` and of a call without a loss name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label_alignment: LabelAlignment | None = None
    """`own-token`: labels[i] is about input_ids[i], as Hugging Face models take them. `predict-next`: labels[i] is
    about input_ids[i + 1]. None: read off the tokens, and refused where they fit both or neither."""
    batch_num_tokens: float | None = Field(default=None, gt=0.0)
    """Denominator over all calls of an optimizer step; the labels of the call are counted when None."""
    dp_size: int | None = Field(default=None, ge=1)
    """Number of data-parallel ranks. The engine stamps its own number, whatever the client says."""


class SftCeConfig(SftConfig):
    """Settings of `sft_ce`."""

    logits_optimization: Literal["none", "compute", "memory"] = "none"
    """Accepted for the wire, where it trades memory for speed at the same result; the engine computes only the
    logits that are needed in any case."""
    logits_optimization_peak_mem_size_in_gib: float = Field(default=4.0, gt=0.0)
    """As `logits_optimization`."""


def sft_loss(inputs: LossInputs, config: SftConfig, denominators: Denominators) -> LossOutput:
    """Loss of one micro-batch. Metrics: `loss`, the mean of -lp over the call's labels."""
    loss = aggregate(-inputs.logprobs, inputs, Aggregation.TOKEN_MEAN, denominators)
    return LossOutput(loss=loss, means={"loss": -(inputs.loss_mask * inputs.logprobs.detach()).sum()})

"""The entropy bonus: loss -= entropy_coeff * aggregate(H), with its gradient.

H_it = -sum_v p_v log p_v is the exact entropy of the next-token distribution over the whole vocabulary, computed by
the engine where the coefficient is not 0. The cheap estimate -lp of the sampled token is only reported (`entropy`):
its gradient is not that of the entropy.
"""

from pydantic import BaseModel, ConfigDict, Field


class EntropyConfig(BaseModel):
    """Key of the entropy bonus."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entropy_coeff: float = Field(default=0.0)
    """Factor of the entropy bonus; 0 computes no entropy. Negative values lower the entropy."""

"""M2PO: a bound on the second moment of the log ratio in the place of per-token trust (arXiv 2510.01161).

Over all trained tokens of a call, those with the largest (old - prox)^2 are dropped until the mean over the tokens
that are left is below `m2_threshold`. Dropped tokens keep counting in the loss's denominators.
"""

# ruff: noqa: F722
import torch
from jaxtyping import Float
from torch import Tensor


def m2_keep(
    difference: Float[Tensor, "rows seq"], mask: Float[Tensor, "rows seq"], threshold: float
) -> Float[Tensor, "rows seq"]:
    """1 where a token stays, else 0 (also where the mask is 0). difference: old - prox, of every row of the call.

    Equal squares stay or go together, so that the choice does not depend on the order of the rows.
    """
    trained = mask != 0
    squares = difference.detach().double() ** 2
    ordered = squares[trained].sort().values
    if not len(ordered):
        return torch.zeros_like(mask)
    means = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1, device=ordered.device)
    last_of_its_value = torch.ones_like(ordered, dtype=torch.bool)
    last_of_its_value[:-1] = ordered[1:] != ordered[:-1]
    fits = (means < threshold) & last_of_its_value
    if not bool(fits.any()):
        return torch.zeros_like(mask)
    bound = ordered[fits.nonzero()[-1, 0]]
    return (trained & (squares <= bound)).to(mask.dtype)

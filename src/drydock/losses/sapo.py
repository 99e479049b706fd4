"""SAPO: a soft gate in the place of the hard clip (Soft Adaptive Policy Optimization, arXiv 2511.20347).

    loss_it = -f(r) A,   f(r) = 4 / tau sigmoid(tau (r - 1)),   tau = sapo_tau_pos where A > 0, else sapo_tau_neg

At r = 1 the gate's slope is 1, that of the unclipped surrogate; it falls off smoothly on both sides.
"""

import torch
from torch import Tensor


def sapo_terms(ratio: Tensor, advantages: Tensor, *, tau_pos: float, tau_neg: float) -> Tensor:
    """Per-token loss."""
    tau = torch.full_like(ratio, tau_neg).masked_fill(advantages > 0, tau_pos)
    return -torch.sigmoid(tau * (ratio - 1.0)) * (4.0 / tau) * advantages

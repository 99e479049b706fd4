"""The clipped surrogate (PPO, arXiv 1707.06347, eq. 7; GRPO, arXiv 2402.03300, eq. 3) and the dual clip.

    loss_it = max(-A r, -A clip(r, 1 - eps_clip, 1 + eps_clip_higher))
    c_clip:   loss_it = min(loss_it, c_clip |A|)                    arXiv 1912.09729, eq. 5

A separate upper distance is DAPO's clip-higher (arXiv 2503.14476, eq. 10). For A > 0 the dual clip never binds,
because the loss is negative there.
"""

import torch
from torch import Tensor


def clipped_terms(ratio: Tensor, advantages: Tensor, *, lower: float, upper: float, c_clip: float | None) -> Tensor:
    """Per-token loss; `lower` and `upper` are the clip distances from 1."""
    terms = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1.0 - lower, 1.0 + upper))
    return terms if c_clip is None else torch.minimum(terms, c_clip * advantages.abs())

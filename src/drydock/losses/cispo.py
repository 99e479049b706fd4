"""CISPO: only the importance weight is clipped, so that no token loses its gradient (MiniMax-M1, 2506.13585).

loss_it = -sg(clip(r, 1 - eps_clip, 1 + eps_clip_higher)) A lp
is_weight_clip_max: sg(min(r, is_weight_clip_max)) instead; ScaleRL (arXiv 2510.13786) uses 4 to 5
"""

from torch import Tensor


def cispo_terms(
    logprobs: Tensor, ratio: Tensor, advantages: Tensor, *, lower: float, upper: float, weight_max: float | None
) -> tuple[Tensor, Tensor]:
    """Per-token loss, and the weight that was used (detached)."""
    ratio = ratio.detach()
    weight = ratio.clamp(1.0 - lower, 1.0 + upper) if weight_max is None else ratio.clamp(max=weight_max)
    return -weight * advantages * logprobs, weight

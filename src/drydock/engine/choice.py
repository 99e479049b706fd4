"""Choosing the next token of each row, all rows at once.

A row's token is the inverse of its cumulative distribution at one uniform number that the row's own generator
drew, so a seeded request samples the same tokens whatever else runs beside it (up to floating-point ties).
Log-probs are those of softmax(logits / temperature) before top-k and top-p: the distribution that a trainer can
recompute. Temperature 0 is greedy, its log-probs those of softmax(logits).
"""

# ruff: noqa: F722, F821
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from drydock.wire.rest import SamplingParams


@dataclass(frozen=True, slots=True)
class ChoiceRules:
    """Sampling parameters of some rows as tensors; parts that no row uses are None.

    greedy: bool [rows]. temperature, top_p: float [rows]. top_k: int [rows], vocabulary size where off.
    """

    temperature: Tensor | None
    greedy: Tensor | None
    top_p: Tensor | None
    top_k: Tensor | None

    @classmethod
    def of(cls, params: Sequence[SamplingParams], device: torch.device | None = None) -> "ChoiceRules":
        temperatures = [p.temperature if p.temperature > 0 else 1.0 for p in params]
        greedy = [p.temperature == 0 for p in params]
        top_k = [p.top_k if p.top_k > 0 else 2**31 - 1 for p in params]
        top_p = [p.top_p for p in params]
        return cls(
            temperature=torch.tensor(temperatures, device=device)[:, None]
            if any(t != 1 for t in temperatures)
            else None,
            greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
            top_p=torch.tensor(top_p, device=device)[:, None] if any(p < 1 for p in top_p) else None,
            top_k=torch.tensor(top_k, device=device)[:, None] if any(p.top_k > 0 for p in params) else None,
        )


def choose_tokens(
    logits: Float[Tensor, "rows vocab"], rules: ChoiceRules, uniform: Float[Tensor, "rows"]
) -> tuple[Int[Tensor, "rows"], Float[Tensor, "rows"]]:
    """Sampled ids and their log-probs. uniform: one number in [0, 1) a row."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if rules.temperature is not None:
        logits = logits / rules.temperature
    logprobs = logits.log_softmax(dim=-1)
    if rules.top_p is None and rules.top_k is None:
        ids = _invert(logprobs.exp(), uniform)
    else:
        ids = _truncated(logprobs, rules, uniform)
    if rules.greedy is not None:
        ids = torch.where(rules.greedy, logprobs.argmax(dim=-1), ids)
    return ids, logprobs.gather(1, ids[:, None])[:, 0]


def _truncated(logprobs: Tensor, rules: ChoiceRules, uniform: Tensor) -> Tensor:
    """Sample among the `top_k` most likely tokens, of those among the fewest whose probability reaches `top_p`."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.exp()
    if rules.top_k is not None:
        rank = torch.arange(probabilities.shape[1], device=probabilities.device)
        probabilities = probabilities.masked_fill(rank >= rules.top_k, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    if rules.top_p is not None:
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities.masked_fill(before >= rules.top_p, 0.0)
    return order.gather(1, _invert(probabilities, uniform)[:, None])[:, 0]


def _invert(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """First index whose cumulative probability exceeds `uniform` times the total; never one of probability 0.

    Where probabilities are NaN, the last index: its log-prob is NaN too, which the caller looks for.
    """
    cumulative = probabilities.cumsum(dim=-1)
    total = cumulative[:, -1:]
    threshold = torch.minimum(uniform[:, None].to(total) * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=probabilities.shape[1] - 1)

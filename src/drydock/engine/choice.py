"""Choosing the next token of each row, all rows at once.

A row's token is the inverse of its cumulative distribution at one uniform number that the row's own generator
drew, so a seeded request samples the same tokens whatever else runs beside it (up to floating-point ties). That is
why each row is cut (top-k, top-p, min-p) by the same operations whatever its neighbours ask for, or not at all.

Log-probs are those of softmax(logits / temperature) before anything that bends the distribution: what a trainer can
recompute. Temperature 0 is greedy, its log-probs those of softmax(logits).
"""

# ruff: noqa: F722, F821
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from drydock.wire.rest import SamplingParams

ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ChoiceRules:
    """Sampling parameters of some rows as tensors; parts that no row uses are None.

    temperature: float [rows, 1]. greedy: bool [rows]. cut: indices [cut rows] of the rows with top-k, top-p or min-p,
    whose limits are top_k, top_p and min_p [cut rows, 1].
    """

    temperature: Tensor | None
    greedy: Tensor | None
    cut: Tensor | None
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor

    @classmethod
    def of(cls, params: Sequence[SamplingParams], device: torch.device | None = None) -> "ChoiceRules":
        """The rules of rows with these parameters, in order."""
        temperatures = [p.temperature if p.temperature > 0 else 1.0 for p in params]
        greedy = [p.temperature == 0 for p in params]
        cut = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1 or p.min_p > 0]

        def column(values: list[float] | list[int]) -> Tensor:
            return torch.tensor(values, device=device)[:, None]

        return cls(
            temperature=column(temperatures) if any(t != 1 for t in temperatures) else None,
            greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
            cut=torch.tensor(cut, device=device) if cut else None,
            top_k=column([params[row].top_k if params[row].top_k > 0 else ALL for row in cut]),
            top_p=column([params[row].top_p for row in cut]),
            min_p=column([params[row].min_p for row in cut]),
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """ids: [rows]. logprobs: of the ids, [rows]. every_logprob: of every token, [rows, vocab]."""

    ids: Int[Tensor, "rows"]
    logprobs: Float[Tensor, "rows"]
    every_logprob: Float[Tensor, "rows vocab"]


def choose_tokens(
    logits: Float[Tensor, "rows vocab"],
    rules: ChoiceRules,
    uniform: Float[Tensor, "rows"],
    bent: Float[Tensor, "rows vocab"] | None = None,
) -> Chosen:
    """Sample one id a row. uniform: one number in [0, 1) a row. bent: logits to sample from in place of `logits`."""
    logprobs = tempered_logprobs(logits, rules.temperature)
    sampled_from = logprobs if bent is None else tempered_logprobs(bent, rules.temperature)
    ids = _invert(sampled_from.exp(), uniform)
    if rules.cut is not None:
        ids = ids.index_copy(0, rules.cut, _truncated(sampled_from[rules.cut], rules, uniform[rules.cut]))
    if rules.greedy is not None:
        ids = torch.where(rules.greedy, sampled_from.argmax(dim=-1), ids)
    return Chosen(ids, logprobs.gather(1, ids[:, None])[:, 0], logprobs)


def tempered_logprobs(logits: Tensor, temperature: Tensor | float | None) -> Tensor:
    """log softmax(logits / temperature) over the last dimension, in float32 (float64 where logits are)."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return (logits if temperature is None else logits / temperature).log_softmax(dim=-1)


def _truncated(logprobs: Tensor, rules: ChoiceRules, uniform: Tensor) -> Tensor:
    """Sample among tokens at least `min_p` times as likely as the likeliest, of those among the `top_k` likeliest, of
    those among the fewest whose probability reaches `top_p`."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.exp()
    probabilities = probabilities.masked_fill(probabilities < rules.min_p * probabilities[:, :1], 0.0)
    rank = torch.arange(probabilities.shape[1], device=probabilities.device)
    probabilities = probabilities.masked_fill(rank >= rules.top_k, 0.0)
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    before = probabilities.cumsum(dim=-1) - probabilities
    probabilities = probabilities.masked_fill((before >= rules.top_p) & (rules.top_p < 1), 0.0)
    return order.gather(1, _invert(probabilities, uniform)[:, None])[:, 0]


def _invert(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """First index whose cumulative probability exceeds `uniform` times the total; never one of probability 0.

    Where probabilities are NaN, the last index: its log-prob is NaN too, which the caller looks for.
    """
    cumulative = probabilities.cumsum(dim=-1)
    total = cumulative[:, -1:]
    threshold = torch.minimum(uniform[:, None].to(total) * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=probabilities.shape[1] - 1)

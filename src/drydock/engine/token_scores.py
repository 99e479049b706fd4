"""What a row of logits says about tokens: the target's log-prob, the entropy, the log-probs of candidate tokens.

All of it under softmax(logits / temperature), the distribution that the sampler drew from (before top-k and top-p),
and in float32 or wider whatever the model's precision.
"""

# ruff: noqa: F722, F821
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

ENTROPY_ROWS = 1_024
"""Positions whose distributions are summed up at once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which scores a batch needs beside log-probs. candidates: candidate tokens a position, 0 for none."""

    entropy: bool = False
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores of rows, predict-next aligned; 0 at positions that are not needed.

    logprobs, entropy: [rows, seq], natural log. candidates: [rows, seq, k], log-probs of the candidate tokens.
    """

    logprobs: Float[Tensor, "rows seq"]
    entropy: Float[Tensor, "rows seq"] | None = None
    candidates: Float[Tensor, "rows seq k"] | None = None

    @classmethod
    def zeros(cls, shape: tuple[int, ...], wanted: Wanted, like: Tensor) -> "TokenScores":
        """Zeros of [rows, seq], with the type and device of `like`."""
        return cls(
            like.new_zeros(shape),
            like.new_zeros(shape) if wanted.entropy else None,
            like.new_zeros(*shape, wanted.candidates) if wanted.candidates else None,
        )

    def tensors(self) -> list[Tensor]:
        """Those that are there, in a fixed order."""
        return [tensor for tensor in (self.logprobs, self.entropy, self.candidates) if tensor is not None]

    def wanted(self) -> Wanted:
        """Which scores are there."""
        return Wanted(self.entropy is not None, 0 if self.candidates is None else self.candidates.shape[-1])


def score_logits(
    logits: Float[Tensor, "positions vocab"],
    targets: Int[Tensor, "positions"],
    temperature: Float[Tensor, "positions"] | None,
    candidates: Int[Tensor, "positions k"] | None,
    *,
    entropy: bool,
) -> TokenScores:
    """Scores of single positions: [positions], candidates [positions, k]."""
    logits = _scaled(logits, temperature)
    if not entropy and candidates is None:
        return TokenScores(-cross_entropy(logits, targets, reduction="none"))
    every = log_softmax(logits, dim=-1)
    return TokenScores(
        every.gather(1, targets[:, None])[:, 0],
        _entropy(every) if entropy else None,
        None if candidates is None else every.gather(1, candidates),
    )


def score_shared_logits(
    logits: Float[Tensor, "positions vocab"],
    targets: Int[Tensor, "rows positions"],
    temperature: Float[Tensor, "rows positions"] | None,
    candidates: Int[Tensor, "rows positions k"] | None,
    *,
    entropy: bool,
) -> TokenScores:
    """Scores of positions that several rows have in common, read with each row's own targets: [rows, positions]."""
    if temperature is not None and bool((temperature != temperature[:1]).any()):
        rows = [
            score_logits(
                logits, targets[row], temperature[row], None if candidates is None else candidates[row], entropy=entropy
            )
            for row in range(len(targets))
        ]
        return _like([torch.stack(parts) for parts in zip(*(row.tensors() for row in rows), strict=True)], rows[0])
    every = log_softmax(_scaled(logits, None if temperature is None else temperature[0]), dim=-1)
    chosen = None
    if candidates is not None:
        row_count, positions, k = candidates.shape
        by_position = candidates.transpose(0, 1).reshape(positions, row_count * k)
        chosen = every.gather(1, by_position).reshape(positions, row_count, k).transpose(0, 1)
    return TokenScores(
        every.gather(1, targets.T).T,
        _entropy(every).expand(targets.shape) if entropy else None,
        chosen,
    )


def spread(scores: TokenScores, needed: Bool[Tensor, "rows seq"]) -> TokenScores:
    """Scores of single positions, in row-major order of `needed`, put where they belong; 0 elsewhere."""
    whole = TokenScores.zeros(tuple(needed.shape), scores.wanted(), scores.logprobs)
    for target, values in zip(whole.tensors(), scores.tensors(), strict=True):
        target[needed] = values
    return whole


def join(first: TokenScores, second: TokenScores) -> TokenScores:
    """Scores of the same rows, side by side along the sequence."""
    parts = zip(first.tensors(), second.tensors(), strict=True)
    return _like([torch.cat(pair, dim=1) for pair in parts], first)


class _Entropy(torch.autograd.Function):
    """Entropy of rows of log-probs; keeps nothing for the backward pass that log_softmax does not keep already.

    H = -sum_v exp(l_v) l_v, dH/dl_v = -exp(l_v) (l_v + 1), a few rows at a time: vocabularies are large.
    """

    @staticmethod
    def forward(ctx: Any, every: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(every)
        parts = [-(part.exp() * _finite(part)).sum(dim=-1) for part in every.split(ENTROPY_ROWS)]
        return torch.cat(parts) if parts else every.new_zeros(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (every,) = ctx.saved_tensors
        result = torch.empty_like(every)
        for begin in range(0, len(every), ENTROPY_ROWS):
            rows = slice(begin, begin + ENTROPY_ROWS)
            result[rows] = -(every[rows].exp() * (_finite(every[rows]) + 1.0)) * gradient[rows, None]
        return result


def _entropy(every: Tensor) -> Tensor:
    entropy = _Entropy.apply(every)
    assert isinstance(entropy, Tensor)
    return entropy


def _finite(logprobs: Tensor) -> Tensor:
    """Log-probs with the smallest finite number for impossible tokens, whose share is 0 in any case."""
    return logprobs.clamp(min=torch.finfo(logprobs.dtype).min)


def _like(tensors: list[Tensor], pattern: TokenScores) -> TokenScores:
    left = iter(tensors)
    return TokenScores(
        next(left),
        None if pattern.entropy is None else next(left),
        None if pattern.candidates is None else next(left),
    )


def _scaled(logits: Tensor, temperature: Tensor | None) -> Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits if temperature is None else logits / temperature.to(logits.dtype)[:, None]

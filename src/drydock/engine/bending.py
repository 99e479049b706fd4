"""Penalties, biases and forbidden ends: what changes a request's logits before a token is chosen.

Formulas are those that vLLM and the OpenAI API document. They act on the choice only; recorded log-probs are of the
unbent distribution.
"""

# ruff: noqa: F722, F821
from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from drydock.engine.prefix_cache import Tokens
from drydock.wire.rest import SamplingParams


class Bending:
    """Bends the logits of one request; `accept` tells it each sampled token."""

    def __init__(
        self, params: SamplingParams, prompt: Tokens, ends: Collection[int], vocab_size: int, device: torch.device
    ) -> None:
        self._params = params
        self._sampled = 0
        self._ends = torch.tensor(sorted(end for end in ends if 0 <= end < vocab_size), device=device)
        self._seen: Tensor | None = None
        self._counts: Tensor | None = None
        if params.repetition_penalty != 1:
            self._seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self._seen[torch.from_numpy(prompt).to(device, torch.long)] = True
        if params.frequency_penalty or params.presence_penalty:
            self._counts = torch.zeros(vocab_size, device=device)
        self._bias: Tensor | None = None
        if params.logit_bias:
            self._bias = torch.zeros(vocab_size, device=device)
            self._bias[torch.tensor(list(params.logit_bias), device=device)] = torch.tensor(
                list(params.logit_bias.values()), dtype=torch.float, device=device
            )

    @classmethod
    def of(
        cls, params: SamplingParams, prompt: Tokens, ends: Collection[int], vocab_size: int, device: torch.device
    ) -> "Bending | None":
        """None for parameters that bend nothing."""
        penalties = params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1
        if penalties or params.logit_bias or params.min_tokens:
            return cls(params, prompt, ends, vocab_size, device)
        return None

    def accept(self, token: int) -> None:
        """Count a sampled token."""
        self._sampled += 1
        if self._seen is not None:
            self._seen[token] = True
        if self._counts is not None:
            self._counts[token] += 1

    def __call__(self, logits: Float[Tensor, "vocab"]) -> Float[Tensor, "vocab"]:
        """The logits to choose from; the argument is left as it is."""
        bent = logits if logits.dtype == torch.float64 else logits.float()
        params = self._params
        if self._bias is not None:
            bent = bent + self._bias
        if self._seen is not None:
            penalised = torch.where(bent > 0, bent / params.repetition_penalty, bent * params.repetition_penalty)
            bent = torch.where(self._seen, penalised, bent)
        if self._counts is not None:
            bent = bent - params.frequency_penalty * self._counts - params.presence_penalty * (self._counts > 0)
        if self._sampled < params.min_tokens and len(self._ends):
            bent = bent.index_fill(0, self._ends, -torch.inf)
        return bent


def bend_rows(
    bendings: Sequence[Bending | None], logits: Float[Tensor, "rows vocab"]
) -> Float[Tensor, "rows vocab"] | None:
    """The logits with each row's bending, None where no row has any; the argument is left as it is."""
    if not any(bendings):
        return None
    bent = logits.clone() if logits.dtype == torch.float64 else logits.float().clone()
    for row, bending in enumerate(bendings):
        if bending is not None:
            bent[row] = bending(logits[row])
    return bent

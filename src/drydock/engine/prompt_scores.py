"""Log-probs of a prompt's own tokens, collected piece by piece while it is prefilled."""

import torch
from torch import Tensor

from drydock.engine.choice import tempered_logprobs
from drydock.engine.prefix_cache import Tokens
from drydock.engine.types import PromptLogprobs, TopLogprobs
from drydock.wire.rest import SamplingParams

LOGITS_AT_ONCE = 2**26


def tokens_at_once(vocab_size: int, max_tokens: int) -> int:
    """Tokens whose logits are held at once: 256 MiB of float32 at most."""
    return min(max_tokens, max(1, LOGITS_AT_ONCE // vocab_size))


class PromptScorer:
    """Takes the logits of a prompt's positions (`add`, in order) and keeps what is asked for."""

    def __init__(self, prompt: Tokens, params: SamplingParams) -> None:
        self._prompt = prompt
        self._temperature = params.temperature or 1.0
        self._top = params.prompt_logprobs or 0
        self._scores = PromptLogprobs(prompt[1:].tolist(), [])

    def add(self, start: int, logits: Tensor) -> None:
        """logits: [tokens, vocab] of positions start, start + 1, ...; each scores the token after its own."""
        following = torch.from_numpy(self._prompt[start + 1 : start + 1 + len(logits)]).to(logits.device, torch.long)
        logprobs = tempered_logprobs(logits[: len(following)], self._temperature)
        self._scores.logprobs.extend(logprobs.gather(1, following[:, None])[:, 0].tolist())
        if self._top:
            self._scores.top.extend(top_logprobs(logprobs, [self._top] * len(logprobs)))

    def scores(self) -> PromptLogprobs:
        """What was collected."""
        return self._scores


def top_logprobs(logprobs: Tensor, counts: list[int]) -> list[TopLogprobs]:
    """The likeliest tokens of each row [rows, vocab], as many as `counts` says."""
    if not counts:
        return []
    values, ids = logprobs.topk(min(max(counts), logprobs.shape[1]), dim=-1)
    rows = zip(ids.tolist(), values.tolist(), counts, strict=True)
    return [list(zip(row[:count], scores[:count], strict=True)) for row, scores, count in rows]

"""Plain results that cross the engine's border."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]

type TopLogprobs = list[tuple[int, float]]
"""(token id, natural log) of the likeliest tokens at one position, likeliest first."""


@dataclass(frozen=True, slots=True)
class WeightSet:
    """A policy's weights in a file.

    path: a safetensors file. policy_version: optimizer steps taken. fingerprint: see `drydock.engine.weights`.
    """

    path: Path
    policy_version: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probs of a prompt's tokens from its second on, under softmax(logits / temperature) as for sampled ones.

    token_ids: those tokens. logprobs: one each. top: for each the likeliest ones, where they were asked for.
    """

    token_ids: list[int]
    logprobs: list[float]
    top: list[TopLogprobs] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One finished sample of a request.

    index: which of the request's `n` samples. error: why it failed (finish reason `error`), else None.
    token_ids: what was sampled, the stop token included when it was emitted; a stop string ends them with the token
        that completed it.
    logprobs: natural log, one per token id, under softmax(logits / temperature) before penalties, biases and cuts
        (temperature 0: under softmax(logits)).
    top_logprobs: per token the likeliest ones under the same distribution, where they were asked for.
    text: the tokens decoded, without an end token, and cut at a matched stop string (before or behind it, as asked).
    policy_version: version of the weights that sampled the first token.
    prompt_tokens, cached_tokens: length of the prompt, and how much of it was not computed again.
    """

    request_id: str
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason = "stop"
    policy_version: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    index: int = 0
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SamplePiece:
    """What a streamed request's sample gained since the piece before: tokens, and the text that became certain.

    The pieces of a sample put together, followed by what its SampleResult adds, are that result's tokens and text.
    """

    request_id: str
    index: int
    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[TopLogprobs]
    text: str

"""Plain results that cross the engine's border."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class WeightSet:
    """A policy's weights in a file.

    path: a safetensors file. policy_version: optimizer steps taken. fingerprint: see `drydock.engine.weights`.
    """

    path: Path
    policy_version: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One finished request.

    token_ids: what was sampled, the stop token included when it was emitted.
    logprobs: natural log, one per token id, under softmax(logits / temperature) before top-k and top-p (temperature
        0: under softmax(logits)).
    text: the tokens decoded without special tokens, cut before a matched stop string.
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

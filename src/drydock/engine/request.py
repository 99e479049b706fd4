"""One request on its way through the sampling engine."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from drydock.engine.prefix_cache import PrefixOwner, Tokens
from drydock.engine.types import FinishReason, SampleResult
from drydock.wire.rest import SamplingParams

STOP_TAIL_SLACK = 8


@dataclass(slots=True, eq=False)
class Request:
    """tokens: what has to be in the slot before the next token can be sampled (the prompt; after new weights, the
    prompt and what was sampled). limit: tokens to sample at most. ends: ids that end it. held: tokens that the
    prefix cache supplied. finish_reason: set when it has ended.
    """

    request_id: str
    prompt: Tokens
    params: SamplingParams
    routing_key: str | None
    limit: int
    ends: frozenset[int]
    uniforms: NDArray[np.float32]
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    chain: list[int] = field(default_factory=list)
    held: int = 0
    cached_tokens: int = 0
    policy_version: int = 0
    owner: PrefixOwner | None = None
    finish_reason: FinishReason | None = None

    @classmethod
    def new(
        cls,
        request_id: str,
        prompt: Tokens,
        params: SamplingParams,
        routing_key: str | None,
        *,
        limit: int,
        ends: frozenset[int],
        seed: int | list[int],
    ) -> "Request":
        uniforms = np.random.default_rng(seed).random(limit, dtype=np.float32)
        return cls(request_id, prompt, params, routing_key, limit, ends, uniforms)

    @property
    def tokens(self) -> Tokens:
        """The prompt and what was sampled of it so far."""
        return self.all_tokens() if self.sampled else self.prompt

    @property
    def length(self) -> int:
        """Number of tokens so far, prompt included."""
        return len(self.prompt) + len(self.sampled)

    @property
    def final_length(self) -> int:
        """Number of tokens that it can reach."""
        return len(self.prompt) + self.limit

    def all_tokens(self) -> Tokens:
        return np.concatenate([self.prompt, np.asarray(self.sampled, dtype=np.int32)])

    def uniform(self) -> float:
        """The random number of the next token."""
        return float(self.uniforms[len(self.sampled)])

    def accept(self, token: int, logprob: float, tokenizer: PreTrainedTokenizerBase) -> None:
        """Append a sampled token and decide whether the request ends with it."""
        self.sampled.append(token)
        self.logprobs.append(logprob)
        if token in self.ends or (self.params.stop and self._stop_string(tokenizer)):
            self.finish_reason = "stop"
        elif len(self.sampled) >= self.limit:
            self.finish_reason = "length"

    def result(self, tokenizer: PreTrainedTokenizerBase) -> SampleResult:
        """The result; the text leaves out the stop token or stop string, the tokens keep it."""
        ended_by_token = bool(self.finish_reason == "stop" and self.sampled and self.sampled[-1] in self.ends)
        text = _decode(tokenizer, self.sampled[:-1] if ended_by_token else self.sampled)
        for stop in self.params.stop:
            text = text.partition(stop)[0]
        return SampleResult(
            request_id=self.request_id,
            token_ids=self.sampled,
            logprobs=self.logprobs,
            text=text,
            finish_reason=self.finish_reason or "abort",
            policy_version=self.policy_version,
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached_tokens,
        )

    def _stop_string(self, tokenizer: PreTrainedTokenizerBase) -> bool:
        """Whether the newest token completed a stop string; looks at as many tokens as one can span."""
        tail = max(len(stop.encode()) for stop in self.params.stop) + STOP_TAIL_SLACK
        text = _decode(tokenizer, self.sampled[-tail:])
        return any(stop in text for stop in self.params.stop)


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text if isinstance(text, str) else "".join(text)

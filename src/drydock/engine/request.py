"""One sample of a request on its way through the sampling engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from drydock.engine.bending import Bending
from drydock.engine.detokenizer import Detokenizer, TokenText
from drydock.engine.prefix_cache import PrefixOwner, Tokens
from drydock.engine.types import FinishReason, PromptLogprobs, SamplePiece, SampleResult, TopLogprobs
from drydock.wire.rest import SamplingParams

HEADROOM = 256
DRAWN_AT_ONCE = 256


@dataclass(slots=True, eq=False)
class Request:
    """tokens: what has to be in the slot before the next token can be sampled (the prompt; after new weights, the
    prompt and what was sampled). limit: tokens to sample at most. ends: ids that end it. held: tokens that the
    prefix cache supplied. space: whose keys and values it computes and may take (see `drydock.engine.prefix_cache`).
    text: kept only where the request has stop strings or is streamed. cut: where its text ends before a stop string.
    finish_reason: set when it has ended.
    """

    request_id: str
    index: int
    prompt: Tokens
    params: SamplingParams
    routing_key: str | None
    limit: int
    ends: frozenset[int]
    draws: np.random.Generator
    uniforms: list[float] = field(default_factory=list)
    streamed: bool = False
    space: int = 0
    bending: Bending | None = None
    text: Detokenizer | None = None
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs | None = None
    chain: list[int] = field(default_factory=list)
    held: int = 0
    cached_tokens: int = 0
    policy_version: int = 0
    owner: PrefixOwner | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    cut: int | None = None
    told_tokens: int = 0
    told_text: int = 0

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

    @property
    def scores_prompt(self) -> bool:
        """Whether its prompt's log-probs are still to be computed."""
        return self.params.prompt_logprobs is not None and self.prompt_logprobs is None

    def all_tokens(self) -> Tokens:
        return np.concatenate([self.prompt, np.asarray(self.sampled, dtype=np.int32)])

    @property
    def expected_length(self) -> int:
        """Number of tokens that room is made for before it is admitted: it may turn out longer."""
        return min(self.final_length, self.length + HEADROOM)

    def uniform(self) -> float:
        """The random number of the next token: of its place among the request's, however often it is computed."""
        while len(self.uniforms) <= len(self.sampled):
            self.uniforms.extend(self.draws.random(DRAWN_AT_ONCE, dtype=np.float32).tolist())
        return self.uniforms[len(self.sampled)]

    def accept(self, token: int, logprob: float, top: TopLogprobs | None = None) -> None:
        """Append a sampled token and decide whether the request ends with it."""
        self.sampled.append(token)
        self.logprobs.append(logprob)
        if top is not None:
            self.top_logprobs.append(top)
        if self.bending is not None:
            self.bending.accept(token)
        enough = len(self.sampled) >= self.params.min_tokens
        if (enough and token in self.ends) or self._completes_stop_string(token):
            self.finish_reason = "stop"
        elif len(self.sampled) >= self.limit:
            self.finish_reason = "length"

    def fail(self, error: str) -> None:
        """End it with an error."""
        self.finish_reason, self.error = "error", error

    def take_piece(self) -> SamplePiece | None:
        """What is new since the last piece; None when nothing is. Text that may begin a stop string waits."""
        assert self.text is not None
        text = self.text.text[: self.cut] if self.cut is not None else self.text.text
        if self.cut is None:
            text = text[: len(text) - _held_back(text, self.params.stop)]
        tokens = slice(self.told_tokens, len(self.sampled))
        if tokens.start == tokens.stop and len(text) <= self.told_text:
            return None
        piece = SamplePiece(
            self.request_id,
            self.index,
            self.sampled[tokens],
            self.logprobs[tokens],
            self.top_logprobs[tokens],
            text[self.told_text :],
        )
        self.told_tokens, self.told_text = len(self.sampled), max(len(text), self.told_text)
        return piece

    def result(self, decode: TokenText) -> SampleResult:
        """The result; the text leaves out the stop token or stop string, the tokens keep it."""
        return SampleResult(
            request_id=self.request_id,
            index=self.index,
            token_ids=self.sampled,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
            prompt_logprobs=self.prompt_logprobs,
            text=self._final_text(decode),
            finish_reason=self.finish_reason or "abort",
            error=self.error,
            policy_version=self.policy_version,
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached_tokens,
        )

    def _final_text(self, decode: TokenText) -> str:
        if self.text is not None:
            return self.text.whole()[: self.cut]
        ended_by_token = bool(self.finish_reason == "stop" and self.sampled and self.sampled[-1] in self.ends)
        return decode(self.sampled[:-1] if ended_by_token else self.sampled)

    def _completes_stop_string(self, token: int) -> bool:
        if (text := self.text) is None:
            return False
        before = len(text.text)
        text.push(token)
        if len(self.sampled) < self.params.min_tokens:
            return False
        first: tuple[int, int] | None = None
        for stop in self.params.stop:
            place = text.text.find(stop, max(0, before - len(stop) + 1))
            if place >= 0 and (first is None or place < first[0]):
                first = (place, place + len(stop))
        if first is None:
            return False
        self.cut = first[self.params.include_stop_str_in_output]
        return True


def _held_back(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of `text` that a stop string begins with."""
    longest = max((len(stop) for stop in stops), default=0)
    for length in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops):
            return length
    return 0

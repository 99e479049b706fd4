"""How sampled completions look on the wire: in generate's results, and in the pieces that a streamed call is told.

A result is the prompt's first sample; where more than one was asked for, `samples` holds all of them. Log-probs are one
object per token, `{"<token id>": {"logprob": x}}`, with the likeliest tokens beside the sampled one where
they were asked for; `compact_logprobs` makes them plain numbers, with `top_logprobs` beside them. `prompt_logprobs` are
the same for the prompt's tokens (compact: `prompt_top_logprobs`), null for its first.
"""

from collections.abc import Sequence
from typing import Any

from drydock.engine.types import PromptLogprobs, SamplePiece, SampleResult, TopLogprobs
from drydock.wire.rest import SamplingParams


def on_the_wire(samples: Sequence[SampleResult], params: SamplingParams) -> dict[str, Any]:
    """The result of one prompt, of all its samples in order."""
    wire = _sample(samples[0], params)
    wire["prompt_tokens"] = samples[0].prompt_tokens
    wire["cached_tokens"] = samples[0].cached_tokens
    if samples[0].prompt_logprobs is not None:
        wire["prompt_logprobs"] = _prompt_logprobs(samples[0].prompt_logprobs, params)
        if params.compact_logprobs and params.prompt_logprobs:
            wire["prompt_top_logprobs"] = [None, *(_top(top) for top in samples[0].prompt_logprobs.top)]
    if len(samples) > 1:
        wire["samples"] = [_sample(sample, params) for sample in samples]
    return wire


def piece_on_the_wire(piece: SamplePiece, prompt: int) -> dict[str, Any]:
    """A piece of a streamed sample; its log-probs are always compact. prompt: which one of the call."""
    return {
        "prompt": prompt,
        "sample": piece.index,
        "text": piece.text,
        "token_ids": piece.token_ids,
        "logprobs": piece.logprobs,
        "top_logprobs": [_top(top) for top in piece.top_logprobs],
    }


def _sample(sample: SampleResult, params: SamplingParams) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "text": sample.text,
        "token_ids": list(sample.token_ids),
        "finish_reason": sample.finish_reason,
        "policy_version": sample.policy_version,
    }
    tops = sample.top_logprobs
    if params.compact_logprobs:
        wire["logprobs"] = list(sample.logprobs)
        if params.logprobs:
            wire["top_logprobs"] = [_top(top) for top in tops]
    elif params.logprobs is not None:
        pairs = zip(sample.token_ids, sample.logprobs, strict=True)
        wire["logprobs"] = [
            _entry(token, logprob, tops[place] if tops else []) for place, (token, logprob) in enumerate(pairs)
        ]
    return wire


def _prompt_logprobs(scores: PromptLogprobs, params: SamplingParams) -> list[Any]:
    """One entry per prompt token; the first has none."""
    if params.compact_logprobs:
        return [None, *scores.logprobs]
    pairs = zip(scores.token_ids, scores.logprobs, strict=True)
    tops = scores.top
    entries = (_entry(token, logprob, tops[place] if tops else []) for place, (token, logprob) in enumerate(pairs))
    return [None, *entries]


def _entry(token: int, logprob: float, top: TopLogprobs) -> dict[str, dict[str, float]]:
    entry = _top(top)
    return {str(token): {"logprob": logprob}} | {name: {"logprob": value} for name, value in entry.items()}


def _top(top: TopLogprobs) -> dict[str, float]:
    return {str(token): logprob for token, logprob in top}

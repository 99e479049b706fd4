"""Completed samples as OpenAI's objects, whole or in chunks."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from drydock.chat import Message, ParsedReply
from drydock.service.serving.token_text import TokenText

type Sample = dict[str, Any]
"""One sample of generate's result with compact log-probs; see `drydock.service.sample_form`."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every object of one answer begins with. kind: `chat.completion` or `text_completion`."""

    kind: str
    model: str
    answer_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def around(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any] | None, *, chunk: bool) -> dict[str, Any]:
        """The object; a chunk without usage has none."""
        chat = self.kind == "chat.completion"
        body: dict[str, Any] = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{self.answer_id}",
            "object": "chat.completion.chunk" if chat and chunk else self.kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }
        return body if usage is None and chunk else {**body, "usage": usage}


def usage(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tokens of a generate result, all prompts together."""
    prompt = sum(result["prompt_tokens"] for result in results)
    cached = sum(result.get("cached_tokens", 0) for result in results)
    sampled = sum(len(sample["token_ids"]) for result in results for sample in samples_of(result))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def samples_of(result: dict[str, Any]) -> list[Sample]:
    """All samples of one prompt."""
    return result.get("samples") or [result]


def chat_choice(index: int, sample: Sample, reply: ParsedReply, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    """One choice of a chat completion."""
    message = Message("assistant", reply.content or "", reply.calls, reasoning=reply.reasoning or "").wire_form()
    return {
        "index": index,
        "message": {**message, "refusal": None},
        "logprobs": logprobs,
        "finish_reason": "tool_calls" if reply.calls else finish_reason(sample),
    }


def finish_reason(sample: Sample) -> str:
    """`length` where the token limit ended it, else `stop`."""
    return "length" if sample["finish_reason"] == "length" else "stop"


class TokenTexts:
    """Log-probs in OpenAI's two forms, with each token's text and bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokens = TokenText(tokenizer)

    def chat(self, part: dict[str, Any]) -> dict[str, Any]:
        """Of a chat choice: `content`, one entry per token with the likeliest ones."""
        tops = part.get("top_logprobs") or [{}] * len(part["token_ids"])
        content = [
            {
                **self._entry(token, logprob),
                "top_logprobs": [self._entry(int(other), value) for other, value in top.items()],
            }
            for token, logprob, top in zip(part["token_ids"], part["logprobs"], tops, strict=True)
        ]
        return {"content": content, "refusal": None}

    def plain(self, part: dict[str, Any], offset: int) -> dict[str, Any]:
        """Of a completion choice: parallel lists. offset: characters of the text before this part."""
        texts = [self._tokens.text(token, first=offset == place == 0) for place, token in enumerate(part["token_ids"])]
        starts = []
        for text in texts:
            starts.append(offset)
            offset += len(text)
        tops = part.get("top_logprobs") or None
        return {
            "tokens": texts,
            "token_logprobs": list(part["logprobs"]),
            "top_logprobs": [{self._tokens.text(int(k)): v for k, v in top.items()} for top in tops] if tops else None,
            "text_offset": starts,
        }

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._tokens.text(token), "logprob": logprob, "bytes": self._tokens.bytes_of(token)}

"""The body of a chat completion as the proxy's dialects want it."""

import json
from dataclasses import dataclass
from typing import Any

from drydock.chat.messages import parse_message
from drydock.chat.parsers.base import ParsedReply
from drydock.chat.refusal import RequestRefused
from drydock.errors import ServiceError


@dataclass(frozen=True, slots=True)
class EndpointTurn:
    """finish_reason: as the endpoint names it. Token counts: None where it gives none."""

    reply: ParsedReply
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None


def read_answer(body: bytes) -> EndpointTurn:
    """Raises ServiceError for what is no chat completion."""
    try:
        whole = json.loads(body)
        choice = whole["choices"][0]
        message = parse_message({**choice["message"], "role": "assistant"}, 0)
    except (ValueError, KeyError, IndexError, TypeError, RequestRefused) as error:
        raise ServiceError(f"the endpoint's answer is no chat completion: {type(error).__name__}: {error}") from None
    usage = whole.get("usage") or {}
    return EndpointTurn(
        reply=ParsedReply(message.text or None, message.calls, message.reasoning or None),
        finish_reason=str(choice.get("finish_reason") or "stop"),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else None

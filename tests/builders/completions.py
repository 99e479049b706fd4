"""Sampled turns as the dialects get them, and the events that a dialect makes of them."""

import json
from typing import Any

from drydock.chat.messages import ToolCall
from drydock.chat.parsers.base import ParsedReply
from drydock.proxy.completion import Completion, FinishReason

ARGUMENTS = '{"command": "echo é", "deep": {"a": [1, null]}}'


def completion(
    content: str | None = None,
    calls: tuple[ToolCall, ...] = (),
    *,
    reasoning: str | None = None,
    finish_reason: FinishReason | None = None,
) -> Completion:
    """A turn with 30 prompt tokens, 20 of them known before, and 7 sampled ones."""
    finish_reason = finish_reason or (FinishReason.TOOL_CALLS if calls else FinishReason.STOP)
    reply = ParsedReply(content, calls, reasoning)
    return Completion("ab-3", 1_700_000_000, "policy", reply, finish_reason, 30, 7, 20)


def full_turn() -> Completion:
    """A turn with everything: reasoning, content, two calls."""
    calls = (ToolCall("call_1", "terminal", ARGUMENTS), ToolCall("call_2", "look", "{}"))
    return completion("Look.\n", calls, reasoning="First\nthink.")


def read_events(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Name ("" for none) and data of each event; a final `[DONE]` is the event ("", {})."""
    events: list[tuple[str, dict[str, Any]]] = []
    for block in stream.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            events.append((lines.get("event", ""), {} if lines["data"] == "[DONE]" else json.loads(lines["data"])))
    return events

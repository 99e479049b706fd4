"""What a tool-call parser does: one sampled text in, content and calls out.

A parser never fails. Text that only resembles a call stays content, so that the agent sees what the policy wrote and
the policy is judged for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drydock.chat.messages import ToolCall


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """The assistant message in a sampled text; `content` is None where only calls were written."""

    content: str | None
    calls: tuple[ToolCall, ...]


class ToolCallParser(Protocol):
    """Splits a sampled text into content and tool calls. opening: the text with which every call begins."""

    opening: str

    def parse(self, text: str, new_id: Callable[[], str]) -> ParsedReply:
        """Read `text` (stop token removed); `new_id` gives a fresh tool-call id for each call found."""
        ...

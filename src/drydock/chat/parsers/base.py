"""What a tool-call parser does: one sampled text in, content and calls out, whole or as the text grows.

A parser never fails. Text that only resembles a call stays content, so that the agent sees what the policy wrote and
the policy is judged for it. A stream tells the same as the parse of the whole text, however the text is cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drydock.chat.messages import ToolCall

type Tools = Sequence[dict[str, Any]] | None
"""Definitions of the request's tools in OpenAI's form. Formats without types read arguments by them."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """The assistant message in a sampled text.

    content: None where nothing but calls or reasoning was written. reasoning: the thinking, without white space around
    it; None where there is none.
    """

    content: str | None
    calls: tuple[ToolCall, ...]
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """What a piece of text adds to the reply: content, reasoning, or one whole call. Exactly one is set."""

    content: str = ""
    reasoning: str = ""
    call: ToolCall | None = None


class ReplyStream(Protocol):
    """One reply while its text grows. Deltas joined are the reply; text that may become something else waits."""

    def feed(self, text: str) -> list[ReplyDelta]:
        """Take more text; what is certain by now, in order."""
        ...

    def finish(self) -> tuple[list[ReplyDelta], ParsedReply]:
        """The text is over: what was held back, and the whole reply."""
        ...


class ToolCallParser(Protocol):
    """Splits a sampled text (stop token removed, special tokens spelt) into content and tool calls.

    `new_id` gives a fresh tool-call id for each call found.
    """

    @property
    def format(self) -> str:
        """Name of the format."""
        ...

    def parse(self, text: str, new_id: Callable[[], str], tools: Tools = None) -> ParsedReply:
        """Read a whole text."""
        ...

    def stream(self, new_id: Callable[[], str], tools: Tools = None) -> ReplyStream:
        """Read a text as it grows."""
        ...

    def without_calls(self) -> "ToolCallParser":
        """The parser for a request that offers no tools: what would be a call stays content."""
        ...

    def call_id(self, n: int, salt: str) -> str:
        """A tool-call id in the shape that the format prescribes; different for each `n` of a `salt`."""
        ...


def parse_whole(stream: ReplyStream, text: str) -> ParsedReply:
    """The reply in a whole text."""
    stream.feed(text)
    return stream.finish()[1]


def plain_call_id(n: int, salt: str) -> str:
    """The id of a format that prescribes none."""
    return f"call_{salt}_{n}"

"""The reply that a stream has told so far, and the deltas that it has not given out yet."""

from collections.abc import Callable

from drydock.chat.messages import ToolCall, clean_text
from drydock.chat.parsers.base import ParsedReply, ReplyDelta
from drydock.chat.parsers.text_joiner import TextJoiner


class GrowingReply:
    """Collects content, reasoning and calls in order; what one text adds comes out of `take` as deltas."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._content = TextJoiner()
        self._reasoning = TextJoiner(strip_start=True)
        self._contents: list[str] = []
        self._reasonings: list[str] = []
        self._calls: list[ToolCall] = []
        self._deltas: list[ReplyDelta] = []

    def content(self, text: str) -> None:
        """More content."""
        self._tell_content(self._content.add(text))

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        if told := self._reasoning.add(text):
            self._reasonings.append(told)
            self._deltas.append(ReplyDelta(reasoning=told))

    def new_content(self) -> None:
        """What follows is a further piece of content."""
        if self._contents:
            self._content.cut()

    def new_reasoning(self) -> None:
        """What follows is a further piece of reasoning."""
        self._reasoning.cut()

    def call(self, name: str, arguments: str) -> None:
        """A call; `arguments` is the JSON text."""
        call = ToolCall(self._new_id(), clean_text(name), clean_text(arguments))
        self._content.cut()
        self._calls.append(call)
        self._deltas.append(ReplyDelta(call=call))

    def take(self) -> list[ReplyDelta]:
        """Deltas since the last time."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> tuple[list[ReplyDelta], ParsedReply]:
        """The last deltas and the reply."""
        self._tell_content(self._content.end(strip=bool(self._calls)))
        content, reasoning = "".join(self._contents), "".join(self._reasonings)
        nothing = None if self._calls or reasoning else ""
        return self.take(), ParsedReply(content or nothing, tuple(self._calls), reasoning or None)

    def _tell_content(self, text: str) -> None:
        if text:
            self._contents.append(text)
            self._deltas.append(ReplyDelta(content=text))

"""Thinking that a model writes between two marks in front of its answer: told apart from content and calls.

The opening mark stands in the sampled text or already at the end of the generation prompt; the first closing mark ends
the thinking. What follows is content and calls, without the white space between. A call inside the thinking is none.
Thinking that is never closed is all thinking, with one exception: where the text ends in calls, they are the model's
calls (it forgot the mark). So in a growing text, whatever may begin a call waits for the closing mark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from drydock.chat.parsers.base import ParsedReply, ReplyDelta, Tools
from drydock.chat.parsers.marked_calls import FALSE_STARTS, MarkedCallParser
from drydock.chat.parsers.marks import begun, line_begins
from drydock.chat.parsers.text_joiner import TextJoiner


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The texts before and after the thinking."""

    opening: str
    closing: str

    def left_open_by(self, text: str) -> bool:
        """Whether `text` (a generation prompt) ends inside the thinking."""
        return text.rfind(self.opening) > text.rfind(self.closing)


MARKS = (ReasoningMarks("<think>", "</think>"), ReasoningMarks("[THINK]", "[/THINK]"))
"""Marks that are known; Qwen3, Qwen3.5, GLM and DeepSeek use the first, Mistral's Magistral the second."""


class _Part(Enum):
    BEFORE = auto()
    THINKING = auto()
    AFTER = auto()
    """Between the closing mark and the first character of the answer."""
    ANSWER = auto()


class ReasoningStream:
    """Splits the thinking off and leaves the rest to the parser's own stream. opened: the prompt ends inside it."""

    def __init__(
        self, marks: ReasoningMarks, opened: bool, parser: MarkedCallParser, new_id: Callable[[], str], tools: Tools
    ) -> None:
        self._marks = marks
        self._parser = parser
        self._tools = tools
        self._answer = parser.stream(new_id, tools)
        self._part = _Part.THINKING if opened else _Part.BEFORE
        self._buffer = ""
        self._joiner = TextJoiner(strip_start=True)
        self._reasoning: list[str] = []
        self._fresh = True

    def feed(self, text: str) -> list[ReplyDelta]:
        """Take more text; what is certain by now."""
        if self._part is _Part.ANSWER:
            return self._answer.feed(text)
        self._buffer += text
        if self._part is _Part.BEFORE:
            self._begin()
        deltas = self._think() if self._part is _Part.THINKING else []
        if self._part is _Part.AFTER:
            self._buffer = self._buffer.lstrip()
            self._part = _Part.ANSWER if self._buffer else _Part.AFTER
        return deltas + self._feed_answer() if self._part is _Part.ANSWER else deltas

    def finish(self) -> tuple[list[ReplyDelta], ParsedReply]:
        """What was held back, and the whole reply."""
        deltas: list[ReplyDelta] = []
        if self._part is _Part.THINKING:
            calls = _ending_calls(self._parser, self._buffer, self._tools, fresh=self._fresh)
            deltas += self._tell(len(self._buffer) if calls is None else calls)
        deltas += self._feed_answer()
        more, reply = self._answer.finish()
        reasoning = "".join(self._reasoning) or None
        content = reply.content or None if reasoning else reply.content
        return deltas + more, ParsedReply(content, reply.calls, reasoning)

    def _begin(self) -> None:
        """Find out whether the text begins with thinking."""
        text = self._buffer.lstrip()
        if text.startswith(self._marks.opening):
            self._buffer = text.removeprefix(self._marks.opening)
            self._part = _Part.THINKING
        elif not self._marks.opening.startswith(text):
            self._part = _Part.ANSWER

    def _think(self) -> list[ReplyDelta]:
        closing = self._marks.closing
        closed = self._buffer.find(closing)
        if closed >= 0:
            deltas = self._tell(closed)
            self._buffer = self._buffer.removeprefix(closing)
            self._part = _Part.AFTER
            return deltas
        opened = self._parser.find_opening(self._buffer, 0, fresh=0 if self._fresh else -1)
        if opened < 0:
            held = max(begun(self._buffer, (closing,)), self._parser.opening_begun(self._buffer, fresh=self._fresh))
            opened = len(self._buffer) - held
        return self._tell(opened)

    def _tell(self, until: int) -> list[ReplyDelta]:
        """Tell that much of the buffer as reasoning."""
        self._fresh = line_begins(self._buffer[:until], before=self._fresh)
        told = self._joiner.add(self._buffer[:until])
        self._buffer = self._buffer[until:]
        if not told:
            return []
        self._reasoning.append(told)
        return [ReplyDelta(reasoning=told)]

    def _feed_answer(self) -> list[ReplyDelta]:
        text, self._buffer = self._buffer, ""
        return self._answer.feed(text)


def _ending_calls(parser: MarkedCallParser, text: str, tools: Tools, *, fresh: bool) -> int | None:
    """Where the calls begin with which `text` ends, only white space between and after them; None without any."""
    first: int | None = None
    begin = 0 if fresh else -1
    place = search = false_starts = 0
    while false_starts < FALSE_STARTS and (opened := parser.find_opening(text, search, fresh=begin)) >= 0:
        found = parser.read(text, opened, tools)
        if found is None:
            false_starts += 1
            search = opened + 1
            continue
        if first is None or text[place:opened].strip():
            first = opened
        place = search = begin = found.end
    return first if first is not None and not text[place:].strip() else None

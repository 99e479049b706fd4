"""Formats whose calls begin with a mark in the text: finding them, in a whole text or as it grows.

A format says with which texts a call can begin and end, and reads one (or a block of several) that begins at a place.
Text from a possible beginning on waits until the call is complete. What begins like a call and is none waits for the
end of the text, because only then it is certain.

A format's `read` must not depend on what follows: what it reads in a text it reads in every longer one too, and a call
ends where one of `closings` ends. Then a stream tells the same however the text is cut.

A text that begins a call over and over without one (a policy that repeats itself) is given up after FALSE_STARTS, so
that reading takes time in proportion to its length.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from drydock.chat.parsers.base import ParsedReply, ReplyDelta, Tools, parse_whole, plain_call_id
from drydock.chat.parsers.growing_reply import GrowingReply
from drydock.chat.parsers.marks import begun, line_begins

FALSE_STARTS = 16
"""After so many openings of a text that begin no call, the rest of it is content."""
_LONG = 4096
"""Characters from which on a call that is not complete counts as long."""


@dataclass(frozen=True, slots=True)
class CallsRead:
    """Calls as (name, arguments as JSON text), and the place after them."""

    calls: Sequence[tuple[str, str]]
    end: int


class MarkedCallParser(ABC):
    """A format; its parser has no state."""

    format: ClassVar[str]
    openings: ClassVar[tuple[str, ...]]
    closings: ClassVar[tuple[str, ...]]

    @abstractmethod
    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The calls that begin with the opening at `start`; None where there is no complete and well-formed one."""

    def find_opening(self, text: str, start: int, *, fresh: int) -> int:
        """Place of the first opening from `start` on, or -1.

        fresh: where in `text` the whole text began or the last call ended, -1 where that is before `text`.
        """
        return min((place for mark in self.openings if (place := text.find(mark, start)) >= 0), default=-1)

    def opening_begun(self, text: str, *, fresh: bool) -> int:
        """Length of the end of `text`, which holds no opening, that may become one. fresh: a call may begin at once."""
        return begun(text, self.openings)

    def parse(self, text: str, new_id: Callable[[], str], tools: Tools = None) -> ParsedReply:
        """Content around the calls, and the calls in order."""
        return parse_whole(self.stream(new_id, tools), text)

    def stream(self, new_id: Callable[[], str], tools: Tools = None) -> "MarkedCallStream":
        """Read a text as it grows."""
        return MarkedCallStream(self, new_id, tools)

    def without_calls(self) -> "MarkedCallParser":
        """The parser for a request that offers no tools: all of a reply is content."""
        return NoCallsParser()

    def call_id(self, n: int, salt: str) -> str:
        """A tool-call id; the format prescribes no shape."""
        return plain_call_id(n, salt)


class NoCallsParser(MarkedCallParser):
    """The format in which nothing is a call."""

    format = "none"
    openings: ClassVar[tuple[str, ...]] = ()
    closings: ClassVar[tuple[str, ...]] = ()

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """None."""
        return None


class MarkedCallStream:
    """See the module's note. The buffer holds what is not told yet; a call may begin at its first character."""

    def __init__(self, parser: MarkedCallParser, new_id: Callable[[], str], tools: Tools) -> None:
        self._parser = parser
        self._tools = tools
        self._reply = GrowingReply(new_id)
        self._buffer = ""
        self._seen = 0
        self._fresh = True

    def feed(self, text: str) -> list[ReplyDelta]:
        """Take more text; what is certain by now."""
        self._buffer += text
        self._read(final=False)
        return self._reply.take()

    def finish(self) -> tuple[list[ReplyDelta], ParsedReply]:
        """What was held back, and the reply."""
        self._read(final=True)
        return self._reply.finish()

    def _read(self, *, final: bool) -> None:
        text, parser = self._buffer, self._parser
        told = search = false_starts = 0
        fresh = 0 if self._fresh else -1
        while (opened := parser.find_opening(text, search, fresh=fresh)) >= 0:
            if not final and not self._may_be_complete(opened):
                break
            found = parser.read(text, opened, self._tools)
            if found is not None:
                self._reply.content(text[told:opened])
                for name, arguments in found.calls:
                    self._reply.call(name, arguments)
                told = search = fresh = self._seen = found.end
            elif final and false_starts < FALSE_STARTS:
                false_starts += 1
                search = opened + 1
            else:
                break
        if opened < 0 or final:
            opened = len(text) - (0 if final else parser.opening_begun(text[told:], fresh=fresh == told))
        self._reply.content(text[told:opened])
        self._fresh = line_begins(text[max(fresh, 0) : opened], before=fresh >= 0)
        self._buffer = text[opened:]
        self._seen = max(self._seen - opened, 0)

    def _may_be_complete(self, opened: int) -> bool:
        """Whether a closing has come since the last time that the call at `opened` was looked at.

        A long call is not looked at before it has grown by an eighth: else reading it would take quadratic time where
        closings are as common as braces are in code.
        """
        seen, length = max(self._seen, opened), len(self._buffer)
        if seen - opened > _LONG and length - opened < (seen - opened) * 9 // 8:
            return False
        self._seen = length
        return any(self._buffer.find(mark, max(opened, seen - len(mark) + 1)) >= 0 for mark in self._parser.closings)

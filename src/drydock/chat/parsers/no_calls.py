"""For requests that offer no tools: all of a reply is content."""

from typing import ClassVar

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser


class NoCallsParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "none"
    openings: ClassVar[tuple[str, ...]] = ()
    closings: ClassVar[tuple[str, ...]] = ()

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """None: nothing is a call."""
        return None

"""Tool calls of DeepSeek V3.1 (`NAME<sep>{...}`) and V3, R1 (`function<sep>NAME` and a fenced JSON block).

Calls stand in one block with a mark at its beginning and end. Of a block that is not well-formed, the calls in it that
are well-formed are read one by one, and the rest stays text.
"""

import re

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import arguments_text, read_json, skip_space
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser

BLOCK, END_OF_BLOCK = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, END_OF_CALL = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCED = re.compile(rf"\s*function{SEPARATOR}([^\s<]+)\s*```(?:json)?\s*")
_BARE = re.compile(rf"\s*([^\s<]+)\s*{SEPARATOR}\s*")
_FENCE = "```"


class DeepSeekParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "deepseek"
    openings = (BLOCK, CALL)
    closings = (END_OF_BLOCK, END_OF_CALL)

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The block, or the single call, at `start`."""
        if text.startswith(CALL, start):
            found = _read_call(text, start)
            return None if found is None else CallsRead((found[0],), found[1])
        place = skip_space(text, start + len(BLOCK))
        calls: list[tuple[str, str]] = []
        while text.startswith(CALL, place):
            found = _read_call(text, place)
            if found is None:
                return None
            calls.append(found[0])
            place = skip_space(text, found[1])
        if not calls or not text.startswith(END_OF_BLOCK, place):
            return None
        return CallsRead(calls, place + len(END_OF_BLOCK))


def _read_call(text: str, start: int) -> tuple[tuple[str, str], int] | None:
    head = _FENCED.match(text, start + len(CALL)) or _BARE.match(text, start + len(CALL))
    found = read_json(text, head.end()) if head else None
    if head is None or found is None:
        return None
    end = skip_space(text, found[1])
    if head.re is _FENCED:
        if not text.startswith(_FENCE, end):
            return None
        end = skip_space(text, end + len(_FENCE))
    arguments = arguments_text(found[0])
    if arguments is None or not text.startswith(END_OF_CALL, end):
        return None
    return (head[1], arguments), end + len(END_OF_CALL)

"""Hermes tool calls: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them, text around.

Used by Hermes, Qwen2.5 and Qwen3 models. A closing tag inside an argument does not cut the call. Anything else that is
not exactly a call (no name, unknown shape, broken JSON, no closing tag) stays text.
"""

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import json_call, read_json, skip_space
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "hermes"
    openings = (OPEN,)
    closings = (CLOSE,)

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The call whose opening tag is at `start`."""
        found = read_json(text, skip_space(text, start + len(OPEN)))
        if found is None:
            return None
        value, end = found
        end = skip_space(text, end)
        call = json_call(value)
        if call is None or not text.startswith(CLOSE, end):
            return None
        return CallsRead((call,), end + len(CLOSE))

"""Tool calls of Llama 3.1 and later: `{"name": ..., "parameters": {...}}`, alone or after `<|python_tag|>`.

Without the tag a call begins on a line of its own; several are separated by `;`, commas or white space. After the tag
stands such an object, or a call of a built-in tool as `NAME.call(KEY="VALUE", ...)`. Other JSON and Python code stay
text. An object is a call only with both a name and arguments, since JSON may be an answer as well.
"""

import ast
import re

from drydock.chat.parsers.base import Tools
from drydock.chat.parsers.json_call import json_call, json_text, read_json, skip_space
from drydock.chat.parsers.marked_calls import CallsRead, MarkedCallParser
from drydock.chat.parsers.marks import begun

TAG = "<|python_tag|>"
_ARGUMENTS = ("parameters", "arguments")
_LINE = re.compile(r'^[^\S\n]*([;,]\s*\{|\{)\s*(?:"|\Z)', re.MULTILINE)
_NEXT = re.compile(r'\s*([;,]\s*\{|\{)\s*(?:"|\Z)')
_SEPARATOR = re.compile(r"([;,])\s*")
_SEPARATOR_LAST = re.compile(r"^[^\S\n]*([;,]\s*)\Z", re.MULTILINE)
_BUILT_IN = re.compile(r"(\w+)\.call\(\s*")
_KEYWORD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\w.+-]+)\s*(?:,\s*|(?=\)))""")


class LlamaJsonParser(MarkedCallParser):
    """The parser; it has no state."""

    format = "llama_json"
    openings = (TAG,)
    closings = ("}", ")")

    def find_opening(self, text: str, start: int, *, fresh: int) -> int:
        """The first tag or object (with a separator before it) that a line begins with or that follows a call."""
        if start == fresh and (following := _NEXT.match(text, start)):
            return following.start(1)
        tag = text.find(TAG, start)
        line = _LINE.search(text, max(start, 1), tag if tag >= 0 else len(text))
        return line.start(1) if line else tag

    def opening_begun(self, text: str, *, fresh: bool) -> int:
        """A tag or separator that has begun."""
        last = _SEPARATOR_LAST.search(text)
        if last is not None and (last.start() or fresh):
            return len(text) - last.start(1)
        return begun(text, self.openings)

    def read(self, text: str, start: int, tools: Tools) -> CallsRead | None:
        """The call at `start`."""
        tagged = text.startswith(TAG, start)
        separator = _SEPARATOR.match(text, start)
        place = skip_space(text, start + len(TAG)) if tagged else separator.end() if separator else start
        if tagged and (built_in := _BUILT_IN.match(text, place)):
            return _built_in(text, built_in.end(), built_in[1])
        found = read_json(text, place)
        if found is None:
            return None
        value, end = found
        if not isinstance(value, dict) or not any(key in value for key in _ARGUMENTS):
            return None
        name = value.get("name", value.get("function"))
        call = json_call({**value, "name": name}, arguments=_ARGUMENTS)
        return None if call is None else CallsRead((call,), end)


def _built_in(text: str, place: int, name: str) -> CallsRead | None:
    """A call whose keyword arguments, literals, begin at `place`."""
    values: dict[str, object] = {}
    while keyword := _KEYWORD.match(text, place):
        try:
            values[keyword[1]] = ast.literal_eval(keyword[2])
        except (ValueError, SyntaxError):
            return None
        place = keyword.end()
    arguments = json_text(values)
    if arguments is None or not text.startswith(")", place):
        return None
    return CallsRead(((name, arguments),), place + 1)

"""Hermes tool calls: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them, text around.

Used by Hermes and Qwen models. Arguments may be an object or a JSON text of one, or missing for none. JSON is read up
to its own end, so a closing tag inside an argument does not cut the call. Raw line breaks within strings, which models
write often, are accepted. Anything else that is not exactly a call (no name, unknown shape, broken JSON, no closing
tag) stays text.
"""

import json
from collections.abc import Callable
from typing import NoReturn

from drydock.chat.messages import ToolCall, clean_text
from drydock.chat.parsers.base import ParsedReply

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant)


class HermesParser:
    """The parser; it has no state."""

    opening = OPEN

    def parse(self, text: str, new_id: Callable[[], str]) -> ParsedReply:
        """Split `text` into the content around the calls and the calls in order."""
        calls: list[ToolCall] = []
        kept: list[str] = []
        begin = 0
        search = 0
        while (opened := text.find(OPEN, search)) >= 0:
            found = _read_call(text, opened + len(OPEN))
            if found is None:
                search = opened + len(OPEN)
                continue
            name, arguments, search = found
            kept.append(text[begin:opened])
            begin = search
            calls.append(ToolCall(new_id(), clean_text(name), clean_text(arguments)))
        kept.append(text[begin:])
        if not calls:
            return ParsedReply(text, ())
        content = "\n".join(part for piece in kept if (part := piece.strip()))
        return ParsedReply(content or None, tuple(calls))


def _read_call(text: str, start: int) -> tuple[str, str, int] | None:
    """Name, arguments as JSON text, and the place after the closing tag of a call whose JSON begins at `start`."""
    while start < len(text) and text[start].isspace():
        start += 1
    try:
        call, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    while end < len(text) and text[end].isspace():
        end += 1
    if not text.startswith(CLOSE, end) or not isinstance(call, dict):
        return None
    name, arguments = call.get("name"), call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not name.strip() or not isinstance(arguments, dict | None):
        return None
    return name.strip(), json.dumps(arguments or {}, ensure_ascii=False), end + len(CLOSE)

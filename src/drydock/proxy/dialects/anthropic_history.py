"""System prompt, messages and tools of Anthropic's API in the form that the proxy works with.

One user message may hold tool results and text; each result becomes a tool message of its own, in the order sent.
Claude Code puts a line for its own API (`x-anthropic-billing-header: ...`) in front of the system prompt, another one
in each call; that API takes it out, and so does this module, since no prompt would be a prefix of the next one else.
Cache hints (`cache_control`) and the error flag of a tool result are no text and reach no model through a template.
"""

import json
import re
from typing import Any

from drydock.chat.messages import Message, ToolCall, clean_text
from drydock.proxy.dialects.fields import Fields, function_head, items, mapping, names, part_texts, refuse, text

_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
_TOOL_KEYS = names("cache_control description eager_input_streaming input_schema name strict type")


def read_system(raw: object) -> list[Message]:
    """The system prompt as one message, or none; blocks are separated by an empty line."""
    if not raw:
        return []
    parts = [raw] if isinstance(raw, str) else part_texts(raw, ("text",), "system", "system")
    kept = [part for part in (_BILLING.sub("", part) for part in parts) if part]
    return [Message("system", clean_text("\n\n".join(kept)))] if kept else []


def read_message(raw: object, place: int) -> list[Message]:
    """`messages[place]` of a request."""
    where = f"messages[{place}]"
    fields = mapping(raw, where, "messages")
    role, content = fields.get("role"), fields.get("content")
    if role not in ("user", "assistant", "system"):
        refuse("messages", f"{where}.role {role!r} is not supported")
    if isinstance(content, str):
        return [Message(role, clean_text(content))]
    blocks = [
        (mapping(block, f"{where}.content[{place}]", "messages"), f"{where}.content[{place}]")
        for place, block in enumerate(items(content, f"{where}.content", "messages"))
    ]
    return [_assistant(blocks)] if role == "assistant" else _given(role, blocks)


def _assistant(blocks: list[tuple[Fields, str]]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block, where in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(text(block, "text", where, "messages"))
        elif kind == "thinking":
            thoughts.append(text(block, "thinking", where, "messages"))
        elif kind == "tool_use":
            given = mapping(block.get("input") or {}, f"{where}.input", "messages")
            identity, name = text(block, "id", where, "messages"), text(block, "name", where, "messages")
            arguments = json.dumps(given, ensure_ascii=False)
            calls.append(ToolCall(clean_text(identity), clean_text(name), clean_text(arguments)))
        else:
            refuse("messages", f"{where} is of type {kind!r}; only text, thinking and tool_use are supported here")
    content, reasoning = clean_text("\n".join(texts)), clean_text("\n".join(thoughts))
    return Message("assistant", content, tuple(calls), reasoning=reasoning)


def _given(role: str, blocks: list[tuple[Fields, str]]) -> list[Message]:
    """Tool messages and user (or system) messages of one message, adjacent texts together."""
    given: list[Message] = []
    texts: list[str] = []

    def flush() -> None:
        if texts:
            given.append(Message(role, clean_text("\n".join(texts))))
            texts.clear()

    for block, where in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(text(block, "text", where, "messages"))
        elif kind == "tool_result" and role == "user":
            flush()
            identity = clean_text(text(block, "tool_use_id", where, "messages"))
            given.append(Message("tool", _result(block.get("content"), where), (), identity))
        else:
            refuse("messages", f"{where} is of type {kind!r}; only text and tool_result are supported here")
    flush()
    return given or [Message(role, "")]


def _result(content: object, where: str) -> str:
    if content is None or isinstance(content, str):
        return clean_text(content or "")
    return clean_text("\n".join(part_texts(content, ("text",), f"{where}.content", "messages")))


def read_tools(raw: object) -> list[dict[str, Any]] | None:
    """The tools as function definitions of chat completions."""
    tools: list[dict[str, Any]] = []
    for place, entry in enumerate(items(raw or [], "tools", "tools")):
        where = f"tools[{place}]"
        tool = mapping(entry, where, "tools")
        if tool.get("type") not in (None, "custom"):
            kind = f"{where} is of type {tool['type']!r}"
            refuse("tools", f"{kind}; only tools with an input_schema are supported; switch it off in the agent")
        function = function_head(tool, _TOOL_KEYS, where)
        function["parameters"] = mapping(tool.get("input_schema"), f"{where}.input_schema", "tools")
        tools.append({"type": "function", "function": function})
    return tools or None

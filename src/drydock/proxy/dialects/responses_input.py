"""Instructions, input items and tools of OpenAI's responses API in the form that the proxy works with.

The items of one sampled turn (reasoning, then a message, then calls) are one assistant message; an item that cannot
follow in that order begins the next one. Instructions and the system messages at the beginning are one system
message, because many templates take only one.
"""

from typing import Any

from drydock.chat.messages import Message, ToolCall, clean_text
from drydock.proxy.dialects.fields import (
    Fields,
    function_head,
    items,
    mapping,
    names,
    only_keys,
    part_texts,
    refuse,
    text,
)

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
NAMESPACE_END = "."
"""Between the name of a namespace and that of its function, for the policy; function names have none of these."""
_ORDER = {"reasoning": 0, "message": 1, "function_call": 2}
_TOOL_KEYS = names("description name parameters strict type")


class _Turns:
    """Input items gathered into messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._kind = ""
        self._reasoning: list[str] = []
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []

    def sampled(self, kind: str, content: str | ToolCall) -> None:
        """Add an item of an assistant turn; `content` is the text of reasoning and messages."""
        if self._kind and (_ORDER[kind] < _ORDER[self._kind] or kind == self._kind == "message"):
            self.end_turn()
        self._kind = kind
        if isinstance(content, ToolCall):
            self._calls.append(content)
        else:
            (self._reasoning if kind == "reasoning" else self._texts).append(content)

    def given(self, message: Message) -> None:
        """Add a message of the harness; system messages at the beginning are joined."""
        self.end_turn()
        if message.role == "system" and len(self.messages) == 1 and self.messages[0].role == "system":
            self.messages[0] = Message("system", f"{self.messages[0].text}\n\n{message.text}")
        else:
            self.messages.append(message)

    def end_turn(self) -> None:
        """Close the assistant message that is being gathered."""
        if self._kind:
            reasoning = "\n".join(self._reasoning)
            calls = tuple(self._calls)
            self.messages.append(Message("assistant", "\n".join(self._texts), calls, reasoning=reasoning))
        self._kind, self._reasoning, self._texts, self._calls = "", [], [], []


def read_input(fields: Fields) -> list[Message]:
    """The conversation; empty where `input` is."""
    turns = _Turns()
    instructions = fields.get("instructions")
    if instructions:
        turns.given(Message("system", clean_text(text(fields, "instructions", "the body", "instructions"))))
    raw = fields.get("input")
    if isinstance(raw, str):
        turns.given(Message("user", clean_text(raw)))
    else:
        for place, entry in enumerate(items(raw, "input", "input")):
            _read_item(turns, mapping(entry, f"input[{place}]", "input"), f"input[{place}]")
    turns.end_turn()
    return turns.messages


def _read_item(turns: _Turns, item: Fields, where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = ROLES.get(role) if isinstance(role := item.get("role"), str) else None
        if role is None:
            refuse("input", f"{where}.role {item.get('role')!r} is not supported")
        content = _parts(item.get("content"), ("input_text", "output_text", "text"), f"{where}.content")
        if role == "assistant":
            turns.sampled("message", content)
        else:
            turns.given(Message(role, content))
    elif kind == "reasoning":
        turns.sampled("reasoning", _parts(item.get("content") or [], ("reasoning_text", "text"), f"{where}.content"))
    elif kind == "function_call":
        identity, name, arguments = (text(item, key, where, "input") for key in ("call_id", "name", "arguments"))
        if item.get("namespace") is not None:
            name = f"{text(item, 'namespace', where, 'input')}{NAMESPACE_END}{name}"
        turns.sampled("function_call", ToolCall(clean_text(identity), clean_text(name), clean_text(arguments)))
    elif kind == "function_call_output":
        identity = clean_text(text(item, "call_id", where, "input"))
        output = _parts(item.get("output"), ("input_text", "output_text"), f"{where}.output")
        turns.given(Message("tool", output, (), identity))
    else:
        refuse("input", f"{where} is of type {kind!r}, which is not supported by this endpoint")


def _parts(content: object, kinds: tuple[str, ...], where: str) -> str:
    """A text, or the texts of parts of these kinds."""
    if isinstance(content, str):
        return clean_text(content)
    return clean_text("\n".join(part_texts(content, kinds, where, "input")))


def read_tools(raw: object) -> list[dict[str, Any]] | None:
    """The tools as function definitions of chat completions; those of a namespace have its name in front of theirs."""
    tools: list[dict[str, Any]] = []
    for place, entry in enumerate(items(raw or [], "tools", "tools")):
        where = f"tools[{place}]"
        tool = mapping(entry, where, "tools")
        if tool.get("type") != "namespace":
            tools.append(_function(tool, where))
            continue
        only_keys(tool, ("description", "name", "tools", "type"), where, "tools")
        space, about = text(tool, "name", where, "tools"), tool.get("description")
        for inner, entry in enumerate(items(tool.get("tools"), f"{where}.tools", "tools")):
            where_inner = f"{where}.tools[{inner}]"
            definition = _function(mapping(entry, where_inner, "tools"), where_inner)
            function = definition["function"]
            function["name"] = f"{space}{NAMESPACE_END}{function['name']}"
            if about and not inner:
                function["description"] = f"{about}\n\n{function.get('description', '')}".rstrip()
            tools.append(definition)
    return tools or None


def _function(tool: Fields, where: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        refuse(
            "tools",
            f"{where} is of type {tool.get('type')!r}; only function tools are supported; switch it off in the agent",
        )
    function = function_head(tool, _TOOL_KEYS, where)
    if NAMESPACE_END in function["name"]:
        refuse("tools", f"{where}.name {function['name']!r} has a {NAMESPACE_END!r}, which no function name may have")
    if tool.get("parameters") is not None:
        function["parameters"] = mapping(tool["parameters"], f"{where}.parameters", "tools")
    return {"type": "function", "function": function}

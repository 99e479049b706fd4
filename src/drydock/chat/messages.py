"""Chat messages in the form in which the ledger compares them and the template renders them.

Two spellings of one message become equal here: content as a text or as a list of text parts, null or missing content,
`developer` for `system`, an assistant's thinking as `reasoning_content` or `reasoning`. Whatever cannot be told to the
model as text is refused by name.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from drydock.chat.refusal import RequestRefused

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
NO_CALLS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call; `arguments` is the JSON text."""

    id: str
    name: str
    arguments: str

    def arguments_object(self) -> dict[str, Any] | None:
        """The arguments as the object that they should be; None where they are none."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return arguments if isinstance(arguments, dict) else None


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message.

    text: "" where the content is null. calls: an assistant's tool calls. reasoning: the thinking before an assistant's
    text, "" for none.
    """

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str = ""
    call_ids: frozenset[str] = field(init=False, compare=False, repr=False)
    """Ids of `calls`."""

    def __post_init__(self) -> None:
        ids = frozenset(call.id for call in self.calls) if self.calls else NO_CALLS
        object.__setattr__(self, "call_ids", ids)

    def wire_form(self) -> dict[str, Any]:
        """The message as an OpenAI client writes it; call arguments are JSON texts, content without text is null."""
        return self._form(self.text or (None if self.calls else ""), [call.arguments for call in self.calls])

    def template_form(self) -> dict[str, Any]:
        """The dictionary that `ChatTemplate` takes: text content, call arguments as an object where they are one."""
        return self._form(self.text, [_loaded(call) for call in self.calls])

    def _form(self, content: str | None, arguments: Sequence[object]) -> dict[str, Any]:
        """arguments: of each call."""
        form: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_call_id is not None:
            form["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            form["name"] = self.name
        if self.reasoning:
            form["reasoning_content"] = self.reasoning
        if self.calls:
            form["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": given}}
                for call, given in zip(self.calls, arguments, strict=True)
            ]
        return form


def parse_message(raw: object, place: int) -> Message:
    """Read `messages[place]` of a request; raises RequestRefused naming what is wrong with it."""
    if not isinstance(raw, dict):
        raise RequestRefused(f"messages[{place}] must be an object", param="messages")
    message = cast("dict[str, Any]", raw)
    role = _ROLES.get(role) if isinstance(role := message.get("role"), str) else None
    if role is None:
        raise RequestRefused(f"messages[{place}].role {message.get('role')!r} is not supported", param="messages")
    text = _text(message.get("content"), place)
    name = message.get("name")
    calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning = ""
    if role == "assistant":
        calls = _calls(message.get("tool_calls"), place)
        reasoning = _reasoning(message, place)
    elif role == "tool":
        tool_call_id = message.get("tool_call_id")
        if not isinstance(tool_call_id, str):
            raise RequestRefused(f"messages[{place}].tool_call_id is missing", param="messages")
        tool_call_id = clean_text(tool_call_id)
    return Message(role, text, calls, tool_call_id, clean_text(name) if isinstance(name, str) else None, reasoning)


def clean_text(text: str) -> str:
    """`text` with lone surrogates (JSON can spell them, UTF-8 cannot) replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _text(content: object, place: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return clean_text(content)
    if not isinstance(content, list):
        raise RequestRefused(f"messages[{place}].content must be a text or a list of text parts", param="messages")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(text, str):
            raise RequestRefused(
                f"messages[{place}].content has a part of type {kind!r}; only text is supported", param="messages"
            )
        texts.append(text)
    return clean_text("\n".join(texts))


def _reasoning(message: dict[str, Any], place: int) -> str:
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise RequestRefused(f"messages[{place}].{name} must be a text", param="messages")
        return clean_text(value)
    return ""


def _calls(raw: object, place: int) -> tuple[ToolCall, ...]:
    if not raw:
        return ()
    calls: list[ToolCall] = []
    for call in raw if isinstance(raw, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict):
            raise RequestRefused(f"messages[{place}].tool_calls must be a list of function calls", param="messages")
        identity, name, arguments = call.get("id"), function.get("name"), function.get("arguments") or "{}"
        if not isinstance(identity, str) or not isinstance(name, str) or not isinstance(arguments, str):
            raise RequestRefused(
                f"messages[{place}].tool_calls needs id, function.name and function.arguments as texts",
                param="messages",
            )
        calls.append(ToolCall(clean_text(identity), clean_text(name), clean_text(arguments)))
    return tuple(calls)


def _loaded(call: ToolCall) -> object:
    arguments = call.arguments_object()
    return call.arguments if arguments is None else arguments

"""A chat template as a function from messages to text, with messages in the form that this template reads.

Templates agree on roles and contents and differ in three things, which are found out once by rendering: whether the
arguments of a call are an object or a JSON text (DeepSeek's), under which name an assistant's thinking is read, and
whether tools are told to the model at all.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from drydock.chat.special_text import SpecialText
from drydock.errors import TemplateError

MARK = f"m{secrets.token_hex(8)}e"
"""A text that no template writes and no message contains."""
_TOOL_NAME = f"t{secrets.token_hex(8)}"
CALL_ID = "abcdef123"
"""A tool-call id that templates with rules about them accept (nine letters and digits)."""
USER: dict[str, Any] = {"role": "user", "content": f"u{secrets.token_hex(8)}r"}
"""A user message that nobody writes: Mistral's template takes equal ones for one another."""

_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "probe",
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "probe"}}},
    },
}
PROBE_TOOLS: list[dict[str, Any]] = [_TOOL]


def call_turn(
    content: str, arguments: dict[str, Any], *, name: str = "probe", identity: str = CALL_ID
) -> dict[str, Any]:
    """An assistant message with one call, as `Message.template_form` gives it."""
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


class TemplateText:
    """The text of conversations.

    arguments_as_text: whether calls are given with their arguments as JSON texts. reasoning_key: the name under which
    the template reads an assistant's thinking, None where it reads none. shows_calls: whether it writes an assistant's
    calls. shows_tools: whether it writes tool definitions.
    """

    def __init__(self, render: Callable[..., str], special: SpecialText, origin: str) -> None:
        """render: the compiled template. Raises TemplateError for one that refuses a user message alone."""
        self._template = render
        self._special = special
        self._origin = origin
        self.arguments_as_text = False
        self.reasoning_key: str | None = None
        self.render([USER], None, True)
        self.shows_tools = self._writes(_TOOL_NAME, [USER], PROBE_TOOLS)
        self.shows_calls = self._find_arguments()
        self.reasoning_key = self._find_reasoning()

    def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, add_generation_prompt: bool
    ) -> str:
        """Text of a conversation, messages as `Message.template_form` gives them.

        Raises TemplateError when the template refuses them.
        """
        return self._template(
            messages=[self._adapted(message) for message in messages],
            tools=list(tools) if tools else None,
            add_generation_prompt=add_generation_prompt,
        )

    def render_hidden(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, add_generation_prompt: bool
    ) -> str:
        """As `render`, with stand-ins for special tokens that messages and tools spell (`SpecialText`).

        Raises TemplateError also for tools that the template would not tell to the model.
        """
        if tools and not self.shows_tools:
            raise TemplateError(
                f"the chat template of {self._origin} does not write tool definitions, so the model would not know of "
                "the tools; use an agent that describes its tools in its prompt, or a template that writes `tools`"
            )
        hidden = self._special.hidden_tools(tools) if tools else None
        return self.render([self._special.hidden(message) for message in messages], hidden, add_generation_prompt)

    def accepts(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> bool:
        """Whether the template renders a conversation at all."""
        try:
            self.render(messages, tools, True)
        except TemplateError:
            return False
        return True

    def _adapted(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("role") != "assistant":
            return message
        reasoning = message.get("reasoning_content")
        calls = message.get("tool_calls")
        if (reasoning is None or self.reasoning_key == "reasoning_content") and not (calls and self.arguments_as_text):
            return message
        adapted = {key: value for key, value in message.items() if key != "reasoning_content"}
        if reasoning is not None and self.reasoning_key is not None:
            adapted[self.reasoning_key] = reasoning
        if calls and self.arguments_as_text:
            adapted["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": _as_text(call["function"]["arguments"])}}
                for call in calls
            ]
        return adapted

    def _find_arguments(self) -> bool:
        """Find the form of arguments; whether calls are written at all."""
        messages = [USER, call_turn("", {"key": MARK})]
        for as_text in (False, True):
            self.arguments_as_text = as_text
            # an object that stands in the text as Python prints it was meant to be given as a text
            if self._writes(MARK, messages) and not self._writes(f"'key': '{MARK}'", messages):
                return True
        self.arguments_as_text = False
        return False

    def _find_reasoning(self) -> str | None:
        for key in _REASONING_KEYS:
            self.reasoning_key = key
            for turn in ({"role": "assistant", "content": "probe"}, call_turn("", {})):
                if self._writes(MARK, [USER, {**turn, "reasoning_content": MARK}]):
                    return key
        return None

    def _writes(self, text: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> bool:
        try:
            return text in self.render(messages, tools, False)
        except TemplateError:
            return False


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

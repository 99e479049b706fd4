"""Chat messages as text, for turns of which no tokens are known."""

from collections.abc import Mapping, Sequence
from typing import Any


def messages_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The messages one after the other, each under its role, with a line for each tool call.

    messages: in the wire form of `drydock.chat.messages.Message`.
    """
    return "\n".join(f"[{message['role']}] {_text(message)}" for message in messages)


def _text(message: Mapping[str, Any]) -> str:
    thinking, content = message.get("reasoning_content"), message.get("content")
    parts = [f"<think>{thinking}</think>"] if thinking else []
    parts += [content] if content else []
    parts += [
        f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls") or ()
    ]
    return "\n".join(parts)

"""One call of an agent, whatever API it came through."""

from dataclasses import dataclass
from typing import Any

from drydock.chat.messages import Message


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a dialect has read from a request body.

    tools: function definitions in the form of chat completions, which is what chat templates read.
    max_tokens: the longest turn that the agent asked for, if it did.
    stream: answer as server-sent events; include_usage: end a chat-completions stream with the token counts.
    overridden: names of the parameters that the agent sent and the run decides instead (temperature and so on).
    """

    model: str
    messages: tuple[Message, ...]
    tools: list[dict[str, Any]] | None
    max_tokens: int | None
    stream: bool = False
    include_usage: bool = False
    overridden: tuple[str, ...] = ()

"""Reading a chat-completions request.

Light checks by hand: a request holds the whole history, and validating it through a model class would cost more than
everything else the proxy does. A field that would change what is sampled or how the reply looks, and that is not
implemented, is refused by name. Sampling parameters (`temperature`, `top_p`, `seed`, penalties) are read by nobody:
the run's own settings decide how the policy is sampled.
"""

import json
from dataclasses import dataclass
from typing import Any, cast

from drydock.chat.messages import Message, parse_message
from drydock.chat.refusal import RequestRefused


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call of the agent. `max_tokens` is what the agent asked for, if it did."""

    model: str
    messages: tuple[Message, ...]
    tools: list[dict[str, Any]] | None
    max_tokens: int | None


def parse_request(body: bytes) -> ChatRequest:
    """Read a request body; raises RequestRefused naming the field that cannot be served."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the request body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RequestRefused("the request body must be a JSON object")
    fields = cast("dict[str, Any]", raw)
    _refuse_unsupported(fields)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("messages must be a non-empty list", param="messages")
    model = fields.get("model")
    return ChatRequest(
        model=model if isinstance(model, str) else "policy",
        messages=tuple(parse_message(message, place) for place, message in enumerate(messages)),
        tools=_tools(fields.get("tools")),
        max_tokens=_max_tokens(fields),
    )


def _refuse_unsupported(fields: dict[str, Any]) -> None:
    if fields.get("stream"):
        raise RequestRefused("stream=true is not supported by this endpoint; set stream to false", param="stream")
    if fields.get("n") not in (None, 1):
        raise RequestRefused("n must be 1: a rollout is one history", param="n")
    if fields.get("tool_choice") not in (None, "auto"):
        raise RequestRefused("tool_choice must be 'auto': sampling is not constrained", param="tool_choice")
    layout = fields.get("response_format")
    if layout is not None and (not isinstance(layout, dict) or layout.get("type") != "text"):
        raise RequestRefused("response_format must be of type 'text'", param="response_format")
    for name in ("functions", "function_call", "logprobs", "top_logprobs", "stop", "audio", "logit_bias", "prediction"):
        if fields.get(name):
            raise RequestRefused(f"{name} is not supported by this endpoint; leave it out", param=name)


def _tools(raw: object) -> list[dict[str, Any]] | None:
    if not raw:
        return None
    if not isinstance(raw, list):
        raise RequestRefused("tools must be a list", param="tools")
    for place, tool in enumerate(raw):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestRefused(f"tools[{place}] must be a function with a name", param="tools")
    return cast("list[dict[str, Any]]", raw)


def _max_tokens(fields: dict[str, Any]) -> int | None:
    asked: list[int] = []
    for name in ("max_tokens", "max_completion_tokens"):
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestRefused(f"{name} must be a positive integer", param=name)
        asked.append(value)
    return min(asked, default=None)

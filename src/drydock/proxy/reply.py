"""The chat-completion object in which a sampled turn goes back to the agent."""

import json
from typing import Any

from drydock.chat.messages import Message
from drydock.chat.parsers.base import ParsedReply


def assistant_message(reply: ParsedReply) -> dict[str, Any]:
    """The assistant message in OpenAI's form; content is null where only calls were written."""
    return Message("assistant", reply.content or "", reply.calls).wire_form()


def completion_body(
    *,
    completion_id: str,
    created: int,
    model: str,
    message: dict[str, Any],
    sampler_finish: str,
    prompt_tokens: int,
    completion_tokens: int,
) -> bytes:
    """The reply's JSON. The finish reason is `tool_calls` for a turn with calls, else `length` or `stop`."""
    finish_reason = "tool_calls" if "tool_calls" in message else "length" if sampler_finish == "length" else "stop"
    return json.dumps(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "message": {**message, "refusal": None},
                    "logprobs": None,
                    "finish_reason": finish_reason,
                }
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        }
    ).encode()

"""A turn as Anthropic's message object and as its events."""

import json
from collections.abc import Iterator
from typing import Any

from drydock.chat.messages import ToolCall
from drydock.proxy.completion import Completion, FinishReason
from drydock.proxy.dialects.sse import event

STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
}


def whole(completion: Completion) -> dict[str, Any]:
    """The message object."""
    return _message(completion, _blocks(completion), STOP_REASONS[completion.finish_reason], _usage(completion))


def events(completion: Completion) -> Iterator[bytes]:
    """`message_start`, then start, deltas and stop of each content block, `message_delta`, `message_stop`."""
    usage = _usage(completion)
    yield _event("message_start", message=_message(completion, [], None, {**usage, "output_tokens": 0}))
    for index, block in enumerate(_blocks(completion)):
        empty, deltas = _in_pieces(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end = {"stop_reason": STOP_REASONS[completion.finish_reason], "stop_sequence": None}
    yield _event("message_delta", delta=end, usage=usage)
    yield _event("message_stop")


def _blocks(completion: Completion) -> list[dict[str, Any]]:
    """Content blocks of a turn. The signature only has to be there: nothing that is replayed is trusted by it."""
    reply = completion.reply
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": completion.id})
    if reply.content:
        blocks.append({"type": "text", "text": reply.content})
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)} for call in reply.calls]
    return blocks


def _input(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object that the API prescribes; what is none becomes an argument that no tool expects."""
    arguments = call.arguments_object()
    return {"arguments": call.arguments} if arguments is None else arguments


def _in_pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The block as it starts, and its deltas."""
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    written = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]


def _message(
    completion: Completion, blocks: list[dict[str, Any]], stop_reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": f"msg_{completion.id}",
        "type": "message",
        "role": "assistant",
        "model": completion.model,
        "content": blocks,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(completion: Completion) -> dict[str, Any]:
    """Anthropic counts tokens that were read from a cache apart from the other input tokens."""
    return {
        "input_tokens": completion.prompt_tokens - completion.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": completion.cached_tokens,
        "output_tokens": completion.completion_tokens,
    }


def _event(kind: str, **data: Any) -> bytes:
    return event({"type": kind, **data}, kind)

"""A turn as the response object of OpenAI's responses API and as its events."""

from collections.abc import Iterator
from typing import Any

from drydock.proxy.completion import Completion, FinishReason
from drydock.proxy.dialects.responses_input import NAMESPACE_END
from drydock.proxy.dialects.sse import event


def events(completion: Completion) -> Iterator[bytes]:
    """Created, each output item with its parts and deltas, and the completed (or incomplete) response."""
    numbers = _Numbered()
    begun = _response(completion, "in_progress", [])
    yield numbers.event("response.created", response=begun)
    yield numbers.event("response.in_progress", response=begun)
    for place, item in enumerate(_items(completion)):
        yield from _item_events(numbers, place, item)
    finished = whole(completion)
    yield numbers.event(f"response.{finished['status']}", response=finished)


def failed(code: str, message: str) -> bytes:
    """Events of a response that failed before there was anything of it."""
    numbers = _Numbered()
    begun = _shell("resp_failed", 0, "policy", "in_progress")
    ended = {**begun, "status": "failed", "error": {"code": code, "message": message}}
    return numbers.event("response.created", response=begun) + numbers.event("response.failed", response=ended)


class _Numbered:
    """Events with their places in the stream."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **data: Any) -> bytes:
        self._next += 1
        return event({"type": kind, "sequence_number": self._next - 1, **data}, kind)


def _status(completion: Completion) -> str:
    return "incomplete" if completion.finish_reason is FinishReason.LENGTH else "completed"


def _items(completion: Completion) -> list[dict[str, Any]]:
    """Output items of a turn; one without calls has a message even where it is empty."""
    reply, status = completion.reply, _status(completion)
    output: list[dict[str, Any]] = []
    if reply.reasoning:
        thought = {"type": "reasoning_text", "text": reply.reasoning}
        output.append(
            {
                "id": f"rs_{completion.id}",
                "type": "reasoning",
                "status": status,
                "summary": [],
                "content": [thought],
                "encrypted_content": None,
            }
        )
    if reply.content or not reply.calls:
        part = {"type": "output_text", "text": reply.content or "", "annotations": [], "logprobs": []}
        head = {"id": f"msg_{completion.id}", "type": "message", "role": "assistant", "status": status}
        output.append({**head, "content": [part]})
    for place, call in enumerate(reply.calls):
        output.append(
            {
                "id": f"fc_{completion.id}_{place}",
                "type": "function_call",
                "status": status,
                "call_id": call.id,
                **_named(call.name),
                "arguments": call.arguments,
            }
        )
    return output


def _named(name: str) -> dict[str, str]:
    """`name`, and `namespace` where it has one."""
    space, _, own = name.rpartition(NAMESPACE_END)
    return {"namespace": space, "name": own} if space and own else {"name": name}


def _item_events(numbers: _Numbered, place: int, item: dict[str, Any]) -> Iterator[bytes]:
    at = {"item_id": item["id"], "output_index": place}
    if item["type"] == "function_call":
        empty = {**item, "status": "in_progress", "arguments": ""}
        yield numbers.event("response.output_item.added", output_index=place, item=empty)
        yield numbers.event("response.function_call_arguments.delta", **at, delta=item["arguments"])
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield numbers.event("response.function_call_arguments.done", **at, **done)
    else:
        yield numbers.event(
            "response.output_item.added", output_index=place, item={**item, "status": "in_progress", "content": []}
        )
        (part,) = item["content"]
        at["content_index"] = 0
        yield numbers.event("response.content_part.added", **at, part={**part, "text": ""})
        kind = f"response.{part['type']}"
        logprobs = {"logprobs": []} if part["type"] == "output_text" else {}
        yield numbers.event(f"{kind}.delta", **at, delta=part["text"], **logprobs)
        yield numbers.event(f"{kind}.done", **at, text=part["text"], **logprobs)
        yield numbers.event("response.content_part.done", **at, part=part)
    yield numbers.event("response.output_item.done", output_index=place, item=item)


def _shell(identity: str, created: int, model: str, status: str) -> dict[str, Any]:
    """A response object without output."""
    return {
        "id": identity,
        "object": "response",
        "created_at": created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": None,
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
    }


def _response(completion: Completion, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_shell(f"resp_{completion.id}", completion.created, completion.model, status), "output": output}


def whole(completion: Completion) -> dict[str, Any]:
    """The response object."""
    status = _status(completion)
    return {
        **_response(completion, status, _items(completion)),
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "usage": {
            "input_tokens": completion.prompt_tokens,
            "input_tokens_details": {"cached_tokens": completion.cached_tokens},
            "output_tokens": completion.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": completion.prompt_tokens + completion.completion_tokens,
        },
    }

"""OpenAI chat completions, the dialect that most harnesses speak.

Reasoning that the policy wrote is told as `reasoning_content`, the name that servers of open models use.
"""

import json
from collections.abc import Iterator
from typing import Any, cast

from drydock.chat.messages import Message, parse_message
from drydock.chat.parsers.base import ParsedReply
from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import Completion
from drydock.proxy.dialects.base import Dialect
from drydock.proxy.dialects.fields import (
    Fields,
    FieldTable,
    flag,
    items,
    load_fields,
    mapping,
    model_name,
    names,
    only_keys,
    positive_integer,
    raw_messages,
    refuse,
)
from drydock.proxy.dialects.sse import DONE, event
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.request import ChatRequest

_LEAVE_OUT = "leave it out"
_NO_STOPS = "a turn ends where the policy ends it; leave it out"
_TEMPLATE = "the run decides how a conversation is rendered; leave it out"
TABLE = FieldTable(
    read=names(
        "max_completion_tokens max_tokens messages modalities model n parallel_tool_calls response_format stream",
        "stream_options tool_choice tools",
    ),
    overridden=names(
        "frequency_penalty min_p presence_penalty reasoning reasoning_effort repetition_penalty seed temperature",
        "thinking top_k top_p verbosity",
    ),
    ignored=names("metadata prompt_cache_key prompt_cache_retention safety_identifier service_tier store user"),
    refused={
        "functions": "use tools",
        "function_call": "use tool_choice",
        "stop": _NO_STOPS,
        "stop_token_ids": _NO_STOPS,
        "chat_template": _TEMPLATE,
        "chat_template_kwargs": _TEMPLATE,
        "logprobs": "the trajectory's record holds them; leave it out",
        **dict.fromkeys(names("audio logit_bias prediction top_logprobs web_search_options"), _LEAVE_OUT),
    },
)


class ChatDialect:
    """The dialect; it has no state."""

    streamed_codes: frozenset[str] = frozenset()

    def parse(self, body: bytes, known: KnownMessages | None = None) -> ChatRequest:
        """Read a request body; raises RequestRefused that names the field which cannot be served."""
        fields = load_fields(body)
        overridden = TABLE.check(fields)
        _check_choices(fields)
        if fields.get("parallel_tool_calls") is False:
            overridden = (*overridden, "parallel_tool_calls")
        asked = (positive_integer(fields, "max_tokens"), positive_integer(fields, "max_completion_tokens"))
        stream = flag(fields, "stream")
        return ChatRequest(
            model=model_name(fields),
            messages=(known or KnownMessages()).read(raw_messages(fields), _read_message),
            tools=read_tools(fields.get("tools")),
            max_tokens=min((value for value in asked if value is not None), default=None),
            stream=stream,
            include_usage=_include_usage(fields, stream),
            overridden=overridden,
        )

    def render(self, completion: Completion) -> bytes:
        """The chat-completion object."""
        choice = {
            "index": 0,
            "message": {**assistant_message(completion.reply), "refusal": None},
            "logprobs": None,
            "finish_reason": completion.finish_reason.value,
        }
        whole = {**_head(completion, "chat.completion"), "choices": [choice], "usage": _usage(completion)}
        return json.dumps(whole).encode()

    def events(self, completion: Completion, request: ChatRequest) -> Iterator[bytes]:
        """One chunk for the role, reasoning, content, each call's name and arguments, and the end; `[DONE]` last."""
        head = _head(completion, "chat.completion.chunk")
        usage = {"usage": None} if request.include_usage else {}

        def chunk(delta: dict[str, Any], ending: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ending}
            return event({**head, "choices": [choice], **usage})

        reply = completion.reply
        yield chunk({"role": "assistant", "content": None if reply.content is None else "", "refusal": None})
        if reply.reasoning:
            yield chunk({"reasoning_content": reply.reasoning})
        if reply.content:
            yield chunk({"content": reply.content})
        for place, call in enumerate(reply.calls):
            named = {"name": call.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": place, "id": call.id, "type": "function", "function": named}]})
            yield chunk({"tool_calls": [{"index": place, "function": {"arguments": call.arguments}}]})
        yield chunk({}, completion.finish_reason.value)
        if request.include_usage:
            yield event({**head, "choices": [], "usage": _usage(completion)})
        yield DONE

    def refusal(self, error: RequestRefused) -> bytes:
        """OpenAI's error object."""
        return error.body()

    def failure(self, error: RequestRefused) -> bytes:
        """The error object as an event; the clients raise it."""
        return b"data: " + self.refusal(error) + b"\n\n" + DONE


CHAT: Dialect = ChatDialect()


def assistant_message(reply: ParsedReply) -> dict[str, Any]:
    """The assistant message in OpenAI's form; content is null where only calls were written."""
    return Message("assistant", reply.content or "", reply.calls, reasoning=reply.reasoning or "").wire_form()


def read_tools(raw: object) -> list[dict[str, Any]] | None:
    """The function definitions of `tools`; raises RequestRefused for another kind of tool."""
    if not raw:
        return None
    for place, tool in enumerate(items(raw, "tools", "tools")):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            refuse("tools", f"tools[{place}] must be a function with a name")
    return cast("list[dict[str, Any]]", raw)


def _read_message(raw: object, place: int) -> tuple[Message]:
    return (parse_message(raw, place),)


def _check_choices(fields: Fields) -> None:
    if fields.get("n") not in (None, 1):
        refuse("n", "n must be 1: a rollout is one history")
    if fields.get("tool_choice") not in (None, "auto"):
        refuse("tool_choice", "tool_choice must be 'auto': sampling is not constrained")
    layout = fields.get("response_format")
    if layout is not None and (not isinstance(layout, dict) or layout.get("type") != "text"):
        refuse("response_format", "response_format must be of type 'text': sampling is not constrained")
    if fields.get("modalities") not in (None, ["text"]):
        refuse("modalities", "modalities must be ['text']")


def _include_usage(fields: Fields, stream: bool) -> bool:
    raw = fields.get("stream_options")
    if raw is None:
        return False
    if not stream:
        refuse("stream_options", "stream_options needs stream true")
    options = mapping(raw, "stream_options", "stream_options")
    only_keys(options, ("include_usage", "include_obfuscation"), "stream_options", "stream_options")
    return flag(options, "include_usage")


def _head(completion: Completion, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{completion.id}",
        "object": kind,
        "created": completion.created,
        "model": completion.model,
    }


def _usage(completion: Completion) -> dict[str, Any]:
    """Both counts of cached tokens are told: OpenHands, through litellm, fails on the one without the other."""
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": completion.prompt_tokens + completion.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": completion.cached_tokens, "cache_write_tokens": 0},
    }

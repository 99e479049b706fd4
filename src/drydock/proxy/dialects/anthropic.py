"""Anthropic messages, in the subset that agents such as Claude Code send: text, tools, thinking."""

import json
from collections.abc import Iterator

from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import Completion
from drydock.proxy.dialects.anthropic_answer import events, whole
from drydock.proxy.dialects.anthropic_history import read_message, read_system, read_tools
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
from drydock.proxy.dialects.sse import event
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.request import ChatRequest

TABLE = FieldTable(
    read=names(
        "context_management max_tokens messages model output_config stream system tool_choice tools",
    ),
    overridden=names("temperature thinking top_k top_p"),
    ignored=names("betas cache_control diagnostics inference_geo metadata service_tier speed user_profile_id"),
    refused={
        "stop_sequences": "a turn ends where the policy ends it; leave it out",
        **dict.fromkeys(names("compaction container fallbacks mcp_servers thread"), "leave it out"),
    },
)
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""By status; other refusals are `invalid_request_error` below 500 and `api_error` from there."""


class AnthropicDialect:
    """The dialect; it has no state."""

    streamed_codes: frozenset[str] = frozenset()

    def parse(self, body: bytes, known: KnownMessages | None = None) -> ChatRequest:
        """Read a request body; raises RequestRefused that names the field which cannot be served."""
        fields = load_fields(body)
        overridden = TABLE.check(fields)
        choice = mapping(fields.get("tool_choice") or {"type": "auto"}, "tool_choice", "tool_choice")
        if choice.get("type") != "auto":
            refuse("tool_choice", "tool_choice must be of type 'auto': sampling is not constrained")
        if choice.get("disable_parallel_tool_use"):
            overridden = (*overridden, "tool_choice.disable_parallel_tool_use")
        if _effort(fields):
            overridden = (*overridden, "output_config.effort")
        _check_context_management(fields.get("context_management"))
        messages = (known or KnownMessages()).read(raw_messages(fields), read_message)
        return ChatRequest(
            model=model_name(fields),
            messages=(*read_system(fields.get("system")), *messages),
            tools=read_tools(fields.get("tools")),
            max_tokens=positive_integer(fields, "max_tokens"),
            stream=flag(fields, "stream"),
            overridden=overridden,
        )

    def render(self, completion: Completion) -> bytes:
        """The message object."""
        return json.dumps(whole(completion)).encode()

    def events(self, completion: Completion, request: ChatRequest) -> Iterator[bytes]:
        """The message as events."""
        return events(completion)

    def refusal(self, error: RequestRefused) -> bytes:
        """Anthropic's error object."""
        return json.dumps(_error(error)).encode()

    def failure(self, error: RequestRefused) -> bytes:
        """The error object as an `error` event, which the clients raise."""
        return event(_error(error), "error")


ANTHROPIC: Dialect = AnthropicDialect()


def _effort(fields: Fields) -> object:
    config = mapping(fields.get("output_config") or {}, "output_config", "output_config")
    only_keys(config, ("effort",), "output_config", "output_config")
    return config.get("effort")


def _check_context_management(raw: object) -> None:
    """Only what leaves the history as the agent sent it."""
    edits = mapping(raw or {}, "context_management", "context_management").get("edits") or []
    for place, edit in enumerate(items(edits, "context_management.edits", "context_management")):
        kept = isinstance(edit, dict) and edit.get("type") == "clear_thinking_20251015" and edit.get("keep") == "all"
        if not kept:
            refuse(
                "context_management",
                f"context_management.edits[{place}] would change the history, which only the agent may; leave it out",
            )


def _error(error: RequestRefused) -> dict[str, object]:
    """Clients know a full context by the words `prompt is too long` only."""
    kind = ERROR_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    full = error.code == "context_length_exceeded"
    return {"type": "error", "error": {"type": kind, "message": f"prompt is too long: {error}" if full else str(error)}}

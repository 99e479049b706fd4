"""OpenAI responses, in the subset that agents such as Codex send: no state at the server, the whole input each time."""

import json
from collections.abc import Iterator

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
    refuse,
)
from drydock.proxy.dialects.responses_answer import events, failed, whole
from drydock.proxy.dialects.responses_input import read_input, read_tools
from drydock.proxy.known_messages import KnownMessages
from drydock.proxy.request import ChatRequest

_STATELESS = "nothing is kept between calls; send the whole input"
TABLE = FieldTable(
    read=names(
        "include input instructions max_output_tokens model parallel_tool_calls reasoning stream text tool_choice",
        "tools truncation",
    ),
    overridden=names("temperature top_p"),
    ignored=names(
        "client_metadata metadata prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier",
        "service_tier store stream_options user",
    ),
    refused={
        "previous_response_id": _STATELESS,
        "conversation": _STATELESS,
        "prompt": "send instructions and input",
        **dict.fromkeys(
            names("background context_management max_tool_calls moderation top_logprobs"),
            "leave it out",
        ),
    },
)


class ResponsesDialect:
    """The dialect; it has no state."""

    streamed_codes: frozenset[str] = frozenset({"context_length_exceeded"})

    def parse(self, body: bytes, known: KnownMessages | None = None) -> ChatRequest:
        """Read a request body; raises RequestRefused that names the field which cannot be served.

        Items are always read anew: what message one belongs to depends on its neighbours.
        """
        fields = load_fields(body)
        overridden = [*TABLE.check(fields), *_choices(fields)]
        messages = read_input(fields)
        if not messages:
            refuse("input", "input must be a text or a non-empty list of items")
        return ChatRequest(
            model=model_name(fields),
            messages=tuple(messages),
            tools=read_tools(fields.get("tools")),
            max_tokens=positive_integer(fields, "max_output_tokens"),
            stream=flag(fields, "stream"),
            overridden=tuple(overridden),
        )

    def render(self, completion: Completion) -> bytes:
        """The response object."""
        return json.dumps(whole(completion)).encode()

    def events(self, completion: Completion, request: ChatRequest) -> Iterator[bytes]:
        """The response as events."""
        return events(completion)

    def refusal(self, error: RequestRefused) -> bytes:
        """OpenAI's error object."""
        return error.body()

    def failure(self, error: RequestRefused) -> bytes:
        """A response that failed."""
        code = error.code or ("server_error" if error.status >= 500 else "invalid_prompt")
        return failed(code, str(error))


RESPONSES: Dialect = ResponsesDialect()


def _choices(fields: Fields) -> list[str]:
    """Names of overridden parameters within other fields; refuses what would change the turn otherwise."""
    overridden: list[str] = []
    if fields.get("tool_choice") not in (None, "auto"):
        refuse("tool_choice", "tool_choice must be 'auto': sampling is not constrained")
    if fields.get("truncation") not in (None, "disabled"):
        refuse("truncation", "truncation must be 'disabled': only the agent may change the history")
    for entry in items(fields.get("include") or [], "include", "include"):
        if entry != "reasoning.encrypted_content":
            refuse("include", f"include {entry!r} is not supported by this endpoint; leave it out")
    layout = mapping(fields.get("text") or {}, "text", "text")
    only_keys(layout, ("format", "verbosity"), "text", "text")
    if mapping(layout.get("format") or {"type": "text"}, "text.format", "text").get("type") != "text":
        refuse("text", "text.format must be of type 'text': sampling is not constrained")
    if layout.get("verbosity") is not None:
        overridden.append("text.verbosity")
    if fields.get("reasoning"):
        overridden.append("reasoning")
    if fields.get("parallel_tool_calls") is False:
        overridden.append("parallel_tool_calls")
    return overridden

import json
from typing import Any

import pytest
from builders.completions import ARGUMENTS, completion, full_turn, read_events

from drydock.chat.messages import Message, ToolCall
from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import Completion, FinishReason
from drydock.proxy.dialects import ANTHROPIC
from drydock.proxy.request import ChatRequest

USER = {"role": "user", "content": "List the files."}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def parse(**fields: Any) -> ChatRequest:
    return ANTHROPIC.parse(json.dumps({"model": "policy", "max_tokens": 99, "messages": [USER], **fields}).encode())


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_a_history_is_read() -> None:
    call = parse(
        system=[said("You are an agent."), {**said("Be brief."), **CACHED}],
        messages=[
            {"role": "user", "content": [said("<reminder>"), {**said("List."), **CACHED}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    said("Look."),
                    {"type": "tool_use", "id": "call_1", "name": "ls", "input": {"é": 1}},
                    {"type": "tool_use", "id": "call_2", "name": "ls", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "a"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "is_error": True,
                        "content": [said("b"), said("c")],
                    },
                    {**said("Go on."), **CACHED},
                ],
            },
        ],
        tools=[{"name": "ls", "description": "List", "input_schema": {"type": "object"}, **CACHED}],
    )
    assert call.messages == (
        Message("system", "You are an agent.\n\nBe brief."),
        Message("user", "<reminder>\nList."),
        Message(
            "assistant",
            "Look.",
            (ToolCall("call_1", "ls", '{"é": 1}'), ToolCall("call_2", "ls", "{}")),
            reasoning="Hm.",
        ),
        Message("tool", "a", (), "call_1"),
        Message("tool", "b\nc", (), "call_2"),
        Message("user", "Go on."),
    )
    function = {"name": "ls", "description": "List", "parameters": {"type": "object"}}
    assert call.tools == [{"type": "function", "function": function}]
    assert (call.max_tokens, call.stream, call.overridden) == (99, False, ())


def test_what_claude_code_sends_is_accepted_and_its_billing_line_is_no_part_of_the_prompt() -> None:
    def sent(nonce: str) -> ChatRequest:
        return parse(
            system=[
                said(f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={nonce};"),
                {**said("You are an agent."), **CACHED},
            ],
            metadata={"user_id": "u"},
            stream=True,
            temperature=1,
            thinking={"type": "adaptive"},
            output_config={"effort": "high"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            tool_choice={"type": "auto", "disable_parallel_tool_use": False},
            tools=[{"name": "Bash", "input_schema": {"type": "object"}, "eager_input_streaming": True}],
        )

    assert sent("fa690") == sent("36ee5")
    assert sent("x").messages[0] == Message("system", "You are an agent.")
    assert sent("x").overridden == ("temperature", "thinking", "output_config.effort")
    assert parse(system="x-anthropic-billing-header: a\nYou.").messages[0].text == "You."
    assert parse(system=[said("See x-anthropic-billing-header: a")]).messages[0].text.startswith("See")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": []}, "messages", "non-empty"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "messages[0].role 'tool'"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages", "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages", "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages", "messages[0].content must be a list"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]},
            "messages",
            "server_tool_use",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "n", "input": 3}]}
                ]
            },
            "messages",
            "content[0].input must be an object",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
            "messages",
            "tool_use_id",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}],
                    }
                ]
            },
            "messages",
            "messages[0].content[0].content[0]",
        ),
        ({"system": [{"type": "image"}]}, "system", "system[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools", "web_search_20250305"),
        ({"tools": [{"name": "a", "input_schema": {}, "defer_loading": True}]}, "tools", "tools[0].defer_loading"),
        ({"tools": [{"name": "a"}]}, "tools", "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "'auto'"),
        ({"stop_sequences": ["x"]}, "stop_sequences", "ends it"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config", "output_config.format"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management", "edits[0]"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "mcp_servers"),
        ({"max_tokens": 0}, "max_tokens", "positive"),
        ({"sytem": "x"}, "sytem", "did you mean 'system'"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse(**fields)
    assert caught.value.param == param
    assert words in str(caught.value)
    error = json.loads(ANTHROPIC.refusal(caught.value))
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")


def test_a_turn_is_rendered_whole() -> None:
    whole = json.loads(ANTHROPIC.render(full_turn()))
    assert (whole["id"], whole["type"], whole["role"], whole["model"]) == ("msg_ab-3", "message", "assistant", "policy")
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole["content"][2] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "terminal",
        "input": json.loads(ARGUMENTS),
    }
    assert whole["stop_reason"] == "tool_use"
    assert whole["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 20,
        "output_tokens": 7,
    }


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"), [(FinishReason.STOP, "end_turn"), (FinishReason.LENGTH, "max_tokens")]
)
def test_stop_reasons(finish_reason: FinishReason, stop_reason: str) -> None:
    turn = completion("x", finish_reason=finish_reason)
    assert json.loads(ANTHROPIC.render(turn))["stop_reason"] == stop_reason


@pytest.mark.parametrize("turn", [full_turn(), completion("Done."), completion("")])
def test_a_stream_joins_to_the_whole_turn(turn: Completion) -> None:
    events = read_events(b"".join(ANTHROPIC.events(turn, parse(stream=True))))
    assert all(name == data["type"] for name, data in events)
    kinds = [name for name, _ in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    message = events[0][1]["message"]
    for kind, data in events[1:]:
        if kind == "content_block_start":
            assert data["index"] == len(message["content"])
            message["content"].append(data["content_block"])
        elif kind == "content_block_delta":
            block, delta = message["content"][data["index"]], data["delta"]
            if delta["type"] == "input_json_delta":
                block["input"] = json.loads(delta["partial_json"])
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] += delta[name]
        elif kind == "message_delta":
            message = {**message, **data["delta"], "usage": data["usage"]}
    assert message == json.loads(ANTHROPIC.render(turn))


def test_a_full_context_is_told_in_the_words_that_clients_know() -> None:
    error = json.loads(ANTHROPIC.refusal(RequestRefused("8 of 7 tokens", code="context_length_exceeded")))
    assert error["error"]["message"].startswith("prompt is too long: ")
    assert json.loads(ANTHROPIC.refusal(RequestRefused("no", status=401)))["error"]["type"] == "authentication_error"
    ((name, data),) = read_events(ANTHROPIC.failure(RequestRefused("no", status=500)))
    assert (name, data["error"]["type"]) == ("error", "api_error")

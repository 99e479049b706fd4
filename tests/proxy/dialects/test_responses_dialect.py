import json
from typing import Any

import pytest
from builders.completions import ARGUMENTS, completion, full_turn, read_events

from drydock.chat.messages import Message, ToolCall
from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import Completion, FinishReason
from drydock.proxy.dialects import RESPONSES
from drydock.proxy.request import ChatRequest


def parse(**fields: Any) -> ChatRequest:
    return RESPONSES.parse(json.dumps({"model": "policy", "input": "List.", **fields}).encode())


def said(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def called(place: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"call_{place}", "name": "shell", "arguments": ARGUMENTS}


def result(place: int, output: Any = "out") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{place}", "output": output}


def test_a_text_is_one_user_message() -> None:
    assert parse().messages == (Message("user", "List."),)
    assert parse(instructions="Be brief.").messages == (Message("system", "Be brief."), Message("user", "List."))


def test_what_codex_sends_is_read() -> None:
    function = {"name": "shell", "description": "Run", "parameters": {"type": "object"}}
    call = parse(
        instructions="You are a coding agent.",
        input=[
            said("developer", "Sandboxed."),
            said("user", "<environment>", "cwd: x"),
            said("user", "List."),
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
                "encrypted_content": None,
            },
            said("assistant", "Look."),
            called(1),
            called(2),
            result(1),
            result(2, [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
            said("assistant", "Done."),
        ],
        tools=[{"type": "function", **function, "strict": False}],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning={"effort": "medium", "summary": "auto"},
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        text={"verbosity": "low"},
        client_metadata={"a": "b"},
    )
    calls = (ToolCall("call_1", "shell", ARGUMENTS), ToolCall("call_2", "shell", ARGUMENTS))
    assert call.messages == (
        Message("system", "You are a coding agent.\n\nSandboxed."),
        Message("user", "<environment>\ncwd: x"),
        Message("user", "List."),
        Message("assistant", "Look.", calls, reasoning="Hm."),
        Message("tool", "out", (), "call_1"),
        Message("tool", "a\nb", (), "call_2"),
        Message("assistant", "Done."),
    )
    assert call.tools == [{"type": "function", "function": function}]
    assert call.stream
    assert sorted(call.overridden) == ["parallel_tool_calls", "reasoning", "text.verbosity"]


def test_items_that_cannot_be_of_one_turn_are_two_messages() -> None:
    call = parse(input=[said("assistant", "a"), called(1), said("assistant", "b"), said("assistant", "c"), called(2)])
    assert [(message.text, len(message.calls)) for message in call.messages] == [("a", 1), ("b", 0), ("c", 1)]


def test_functions_of_a_namespace_carry_its_name() -> None:
    spawn = {"type": "function", "name": "spawn", "description": "Start one.", "parameters": {"type": "object"}}
    space = {
        "type": "namespace",
        "name": "agents",
        "description": "Sub-agents.",
        "tools": [spawn, {**spawn, "name": "end"}],
    }
    call = parse(tools=[space])
    assert [tool["function"]["name"] for tool in call.tools or ()] == ["agents.spawn", "agents.end"]
    assert [tool["function"]["description"] for tool in call.tools or ()] == ["Sub-agents.\n\nStart one.", "Start one."]
    turn = completion(None, (ToolCall("call_1", "agents.spawn", "{}"), ToolCall("call_2", "shell", "{}")))
    items = json.loads(RESPONSES.render(turn))["output"]
    assert [(item.get("namespace"), item["name"]) for item in items] == [("agents", "spawn"), (None, "shell")]
    assert parse(input=items).messages == (Message("assistant", "", turn.reply.calls),)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": []}, "input", "non-empty"),
        ({"input": None}, "input", "input must be a list"),
        ({"input": ["x"]}, "input", "input[0] must be an object"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "item_reference"),
        ({"input": [{"type": "custom_tool_call", "call_id": "x"}]}, "input", "custom_tool_call"),
        ({"input": [{"role": "oracle", "content": "x"}]}, "input", "input[0].role 'oracle'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input", "input[0].content[0]"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input", "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "x", "name": "y"}]}, "input", "input[0].arguments"),
        ({"instructions": 3}, "instructions", "instructions"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "whole input"),
        ({"conversation": "conv_1"}, "conversation", "whole input"),
        ({"background": True}, "background", "background"),
        ({"truncation": "auto"}, "truncation", "'disabled'"),
        ({"include": ["message.output_text.logprobs"]}, "include", "message.output_text.logprobs"),
        ({"text": {"format": {"type": "json_schema"}}}, "text", "text.format"),
        ({"tool_choice": "required"}, "tool_choice", "'auto'"),
        ({"tools": [{"type": "web_search"}]}, "tools", "tools[0] is of type 'web_search'"),
        ({"tools": [{"type": "function"}]}, "tools", "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a.b"}]}, "tools", "tools[0].name 'a.b'"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "x"}]}]}, "tools", "tools[0].tools[0]"),
        ({"max_output_tokens": "9"}, "max_output_tokens", "positive"),
        ({"instruction": "x"}, "instruction", "did you mean 'instructions'"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse(**fields)
    assert caught.value.param == param
    assert words in str(caught.value)


def test_a_turn_is_rendered_whole_and_comes_back_as_the_same_message() -> None:
    whole = json.loads(RESPONSES.render(full_turn()))
    assert (whole["id"], whole["object"], whole["status"]) == ("resp_ab-3", "response", "completed")
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert whole["output"][2] | {"call_id": "call_1", "arguments": ARGUMENTS} == whole["output"][2]
    assert len({item["id"] for item in whole["output"]}) == 4
    assert whole["usage"]["input_tokens_details"] == {"cached_tokens": 20}
    reply = full_turn().reply
    message = Message("assistant", reply.content or "", reply.calls, reasoning=reply.reasoning or "")
    assert parse(input=[said("user", "x"), *whole["output"]]).messages[1:] == (message,)


def test_a_turn_cut_by_the_token_limit_is_incomplete() -> None:
    turn = completion("cut", finish_reason=FinishReason.LENGTH)
    whole = json.loads(RESPONSES.render(turn))
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert read_events(b"".join(RESPONSES.events(turn, parse())))[-1][0] == "response.incomplete"


@pytest.mark.parametrize("turn", [full_turn(), completion("Done."), completion("")])
def test_a_stream_joins_to_the_whole_turn(turn: Completion) -> None:
    whole = json.loads(RESPONSES.render(turn))
    events = read_events(b"".join(RESPONSES.events(turn, parse(stream=True))))
    assert all(name == data["type"] for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert [name for name, _ in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0][1]["response"]["output"] == []
    assert events[-1] == ("response.completed", {**events[-1][1], "response": whole})
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert done == whole["output"]
    for place, item in enumerate(whole["output"]):
        told = "".join(
            data["delta"] for name, data in events if name.endswith(".delta") and data["output_index"] == place
        )
        assert told == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


def test_a_failure_in_a_stream_keeps_its_code() -> None:
    events = read_events(RESPONSES.failure(RequestRefused("full", code="context_length_exceeded")))
    assert [name for name, _ in events] == ["response.created", "response.failed"]
    failed = events[-1][1]["response"]
    assert (failed["status"], failed["error"]) == ("failed", {"code": "context_length_exceeded", "message": "full"})

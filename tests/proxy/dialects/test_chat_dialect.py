import json
from typing import Any

import pytest
from builders.completions import ARGUMENTS, completion, full_turn, read_events
from builders.proxy_calls import START, TOOLS

from drydock.chat.messages import Message
from drydock.chat.refusal import RequestRefused
from drydock.proxy.completion import FinishReason
from drydock.proxy.dialects import CHAT
from drydock.proxy.request import ChatRequest


def parse(**fields: Any) -> ChatRequest:
    return CHAT.parse(json.dumps({"model": "policy", "messages": START, **fields}).encode())


def joined(stream: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client puts together from chunks."""
    message: dict[str, Any] = {"tool_calls": []}
    for chunk in stream:
        for choice in chunk["choices"]:
            for name, value in choice["delta"].items():
                if name != "tool_calls":
                    message[name] = (message.get(name) or "") + value if isinstance(value, str) else value
            for part in choice["delta"].get("tool_calls", ()):
                if part["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": part["id"], "type": part["type"], "function": {}})
                function = message["tool_calls"][part["index"]]["function"]
                for name, value in part["function"].items():
                    function[name] = function.get(name, "") + value
    return message


def test_a_request_is_read() -> None:
    call = parse(
        tools=TOOLS, max_tokens=9, max_completion_tokens=7, stream=True, stream_options={"include_usage": True}
    )
    assert call.messages == (Message("system", "You are an agent."), Message("user", "List the files."))
    assert (call.model, call.tools, call.max_tokens) == ("policy", TOOLS, 7)
    assert (call.stream, call.include_usage, call.overridden) == (True, True, ())


def test_what_the_run_decides_is_named_and_what_changes_nothing_is_not() -> None:
    call = parse(
        temperature=0.1,
        top_p=1,
        seed=3,
        reasoning_effort="high",
        parallel_tool_calls=False,
        presence_penalty=None,
        user="me",
        prompt_cache_key="k",
        store=False,
        metadata={"a": "b"},
        n=1,
        stop=None,
        logprobs=False,
        tool_choice="auto",
    )
    assert call.overridden == ("temperature", "top_p", "seed", "reasoning_effort", "parallel_tool_calls")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"temprature": 1}, "temprature", "did you mean 'temperature'"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs", "the run decides"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream true"),
        ({"stream": True, "stream_options": {"other": 1}}, "stream_options", "stream_options.other"),
        ({"modalities": ["text", "audio"]}, "modalities", "['text']"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools", "tools[0]"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse(**fields)
    assert caught.value.param == param
    assert words in str(caught.value)
    assert json.loads(CHAT.refusal(caught.value))["error"]["type"] == "invalid_request_error"


def test_a_turn_is_rendered_whole() -> None:
    whole = json.loads(CHAT.render(full_turn()))
    assert (whole["id"], whole["object"], whole["created"]) == ("chatcmpl-ab-3", "chat.completion", 1_700_000_000)
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Look.\n"
    assert choice["message"]["reasoning_content"] == "First\nthink."
    assert choice["message"]["tool_calls"][0] == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "terminal", "arguments": ARGUMENTS},
    }
    assert whole["usage"] == {
        "prompt_tokens": 30,
        "completion_tokens": 7,
        "total_tokens": 37,
        "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
    }


@pytest.mark.parametrize(
    "turn",
    [
        full_turn(),
        completion("cut", finish_reason=FinishReason.LENGTH),
        completion(""),
        completion(None, reasoning="r"),
    ],
)
@pytest.mark.parametrize("include_usage", [True, False])
def test_a_stream_joins_to_the_whole_turn(turn: Any, include_usage: bool) -> None:
    call = parse(stream=True, stream_options={"include_usage": include_usage})
    stream = b"".join(CHAT.events(turn, call))
    assert stream.endswith(b"data: [DONE]\n\n")
    chunks = [data for _, data in read_events(stream)][:-1]
    whole = json.loads(CHAT.render(turn))
    expected = {"tool_calls": [], **whole["choices"][0]["message"]}
    message = joined(chunks)
    assert {**message, "content": message["content"] or None} == {**expected, "content": expected["content"] or None}
    endings = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert endings == [None] * (len(endings) - 1) + [whole["choices"][0]["finish_reason"]]
    assert {chunk["id"] for chunk in chunks} == {whole["id"]}
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    if include_usage:
        assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
    else:
        assert not any("usage" in chunk for chunk in chunks)

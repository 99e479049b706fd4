import itertools
import json

import pytest

from drydock.chat.parsers import HermesParser, ParsedReply


def parse(text: str) -> ParsedReply:
    numbers = itertools.count(1)
    return HermesParser().parse(text, lambda: f"call_{next(numbers)}")


def test_several_calls_with_text_around() -> None:
    reply = parse(
        'First.\n<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>\n'
        'then <tool_call>{"name": "b", "arguments": "{\\"y\\": \\"é\\"}"}</tool_call> done '
    )
    assert reply.content == "First.\nthen\ndone"
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("call_1", "a", '{"x": 1}'),
        ("call_2", "b", '{"y": "é"}'),
    ]


def test_a_call_alone_has_no_content() -> None:
    assert parse('\n<tool_call>{"name": "finish"}</tool_call>\n') == parse(
        '<tool_call>{"name": "finish", "arguments": null}</tool_call>'
    )
    assert parse('<tool_call>{"name": "finish"}</tool_call>').content is None


def test_a_closing_tag_or_a_raw_line_break_in_an_argument_does_not_end_the_call() -> None:
    (call,) = parse('<tool_call>{"name": "a", "arguments": {"x": "</tool_call>\nnext"}}</tool_call>').calls
    assert json.loads(call.arguments) == {"x": "</tool_call>\nnext"}


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "",
        " outer space stays ",
        "<tool_call>{broken</tool_call>",
        "<tool_call></tool_call>",
        '<tool_call>{"name": "a", "arguments": {}}',
        '<tool_call>{"name": "a", "arguments": {}} extra</tool_call>',
        '<tool_call>{"name": "a", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "a", "arguments": "not json"}</tool_call>',
        '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": " ", "arguments": {}}</tool_call>',
        '<tool_call>["a"]</tool_call>',
        "<tool_call>" + '{"name":' * 3000,
        "<tool_call>" + "[" * 100_000,
    ],
)
def test_what_is_not_a_call_stays_text(text: str) -> None:
    assert parse(text) == ParsedReply(text, ())


def test_a_malformed_call_beside_a_good_one_stays_in_the_content() -> None:
    reply = parse('<tool_call>{bad</tool_call><tool_call>{"name": "a", "arguments": {}}</tool_call>')
    assert reply.content == "<tool_call>{bad</tool_call>"
    assert [call.name for call in reply.calls] == ["a"]


def test_lone_surrogates_do_not_reach_the_reply() -> None:
    (call,) = parse('<tool_call>{"name": "a", "arguments": {"x": "\\ud800"}}</tool_call>').calls
    assert json.loads(call.arguments) == {"x": "\ufffd"}

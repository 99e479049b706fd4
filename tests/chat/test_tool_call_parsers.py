"""Each format beside Hermes: what is a call, what stays text, which types arguments get."""

import itertools
import json
from typing import Any

import pytest

from drydock.chat.parsers import (
    DeepSeekParser,
    GlmParser,
    HarmonyParser,
    HermesParser,
    LlamaJsonParser,
    MistralParser,
    ParsedReply,
    QwenXmlParser,
    ToolCallParser,
)

type Call = tuple[str, dict[str, Any]]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "edit",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "line": {"type": "integer"},
                    "ratio": {"type": "number"},
                    "all": {"type": "boolean"},
                    "lines": {"type": "array", "items": {"type": "integer"}},
                    "options": {"$ref": "#/$defs/Options"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "range": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                    "mode": {"enum": ["a", "b"]},
                },
                "$defs": {"Options": {"type": "object"}},
            },
        },
    }
]


def parse(parser: ToolCallParser, text: str, tools: Any = TOOLS) -> ParsedReply:
    numbers = itertools.count(1)
    return parser.parse(text, lambda: f"call_{next(numbers)}", tools)


def calls_of(reply: ParsedReply) -> list[Call]:
    return [(call.name, json.loads(call.arguments)) for call in reply.calls]


BLOCK, END_OF_BLOCK = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
XML = "<tool_call>\n<function=edit>\n<parameter=path>\n{}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("parser", "text", "content", "calls"),
    [
        (QwenXmlParser(), f"I edit.\n\n{XML.format('a')}\n{XML.format('b')}\n", "I edit.", ["a", "b"]),
        (QwenXmlParser(), XML.format("\n  x = '</parameter>'\n"), None, ["\n  x = '</parameter>'\n"]),
        (QwenXmlParser(), XML.format("</tool_call>"), None, ["</tool_call>"]),
        (
            QwenXmlParser(),
            "<tool_call><function=edit><parameter=path>a</parameter></function></tool_call>",
            None,
            ["a"],
        ),
        (
            GlmParser(),
            "Now\n<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value> a\n</arg_value>\n</tool_call>",
            "Now",
            [" a\n"],
        ),
        (
            GlmParser(),
            "<tool_call>edit<arg_key>path</arg_key><arg_value></arg_value> x</arg_value></tool_call>",
            None,
            ["</arg_value> x"],
        ),
        (LlamaJsonParser(), '{"name": "edit", "parameters": {"path": "a"}}', None, ["a"]),
        (LlamaJsonParser(), ' <|python_tag|>{"name": "edit", "arguments": {"path": "a"}}', None, ["a"]),
        (
            LlamaJsonParser(),
            '{"type": "function", "function": "edit", "parameters": {"path": "a"}}; {"name": "edit", '
            '"parameters": {"path": "b"}}\n{"name": "edit", "parameters": "{\\"path\\": \\"c\\"}"}',
            None,
            ["a", "b", "c"],
        ),
        (LlamaJsonParser(), 'I call\n{"name": "edit", "parameters": {"path": "a"}}', "I call", ["a"]),
        (LlamaJsonParser(), 'So <|python_tag|>edit.call(path="a (1), b")', "So", ["a (1), b"]),
        (MistralParser(), '[TOOL_CALLS] [{"name": "edit", "arguments": {"path": "a"}}]', None, ["a"]),
        (
            MistralParser(),
            'Two [TOOL_CALLS][{"name": "edit", "arguments": {"path": "]"}}, '
            '{"name": "edit", "arguments": {"path": "b"}, "id": "123456789"}]',
            "Two",
            ["]", "b"],
        ),
        (
            MistralParser(),
            '[TOOL_CALLS]edit[ARGS]{"path": "a"}[TOOL_CALLS]edit[CALL_ID]abc[ARGS]{"path": "b"}'
            '[TOOL_CALLS]edit{"path": "c"}',
            None,
            ["a", "b", "c"],
        ),
        (
            DeepSeekParser(),
            f'Both{BLOCK}{CALL}edit{SEPARATOR}{{"path": "a"}}{END}{CALL}edit{SEPARATOR}{{"path": "b"}}{END}'
            f"{END_OF_BLOCK}",
            "Both",
            ["a", "b"],
        ),
        (
            DeepSeekParser(),
            f'{BLOCK}{CALL}function{SEPARATOR}edit\n```json\n{{"path": "```"}}\n```{END}{END_OF_BLOCK}',
            None,
            ["```"],
        ),
        (DeepSeekParser(), f'{CALL}edit{SEPARATOR}{{"path": "a"}}{END}', None, ["a"]),
        (
            HarmonyParser(),
            '<|channel|>commentary to=functions.edit <|constrain|>json<|message|>{"path": "a"}',
            None,
            ["a"],
        ),
        (HarmonyParser(), ' to=functions.edit<|channel|>commentary json<|message|>{"path": "a"}', None, ["a"]),
        (
            HarmonyParser(),
            "<|channel|>commentary<|message|>I edit.<|end|><|start|>assistant<|channel|>commentary to=functions.edit"
            ' <|constrain|>json<|message|>{"path": "a"}<|call|><|start|>assistant to=functions.edit<|channel|>analysis'
            '<|message|>{"path": "b"}<|call|>',
            "I edit.",
            ["a", "b"],
        ),
    ],
)
def test_calls_and_the_text_around(parser: ToolCallParser, text: str, content: str | None, calls: list[str]) -> None:
    reply = parse(parser, text)
    assert reply.content == content
    assert calls_of(reply) == [("edit", {"path": path}) for path in calls]
    assert [call.id for call in reply.calls] == [f"call_{n}" for n in range(1, len(calls) + 1)]


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (QwenXmlParser(), "<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>\n</tool_call>"),
        (QwenXmlParser(), "<function=edit>\n<parameter=path>\na\n</parameter>\n</function>"),
        (QwenXmlParser(), "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n"),
        (QwenXmlParser(), "<tool_call>\n<function=>\n</function>\n</tool_call>"),
        (QwenXmlParser(), "<tool_call>\n<function=edit> then\n</function>\n</tool_call>"),
        (GlmParser(), "<tool_call>edit\n<arg_key>path</arg_key>\n</tool_call>"),
        (GlmParser(), "<tool_call></tool_call>"),
        (GlmParser(), '<tool_call>{"name": "edit"}</tool_call>'),
        (LlamaJsonParser(), '{"name": "edit"}'),
        (LlamaJsonParser(), '{"answer": {"parameters": {}}}'),
        (LlamaJsonParser(), 'As {"name": "edit", "parameters": {}}'),
        (LlamaJsonParser(), '{"name": "edit", "parameters": [1]}'),
        (LlamaJsonParser(), "<|python_tag|>print(1)"),
        (LlamaJsonParser(), "<|python_tag|>edit.call(path=open('x'))"),
        (LlamaJsonParser(), "<|python_tag|>edit.call('x')"),
        (MistralParser(), "[TOOL_CALLS]"),
        (MistralParser(), "[TOOL_CALLS][]"),
        (MistralParser(), '[TOOL_CALLS][{"name": "edit", "arguments": {}}, {"name": 5}]'),
        (MistralParser(), '[TOOL_CALLS]edit[ARGS]{"path": '),
        (MistralParser(), "[TOOL_CALLS]edit[ARGS]nothing"),
        (DeepSeekParser(), f"{BLOCK}{END_OF_BLOCK}"),
        (DeepSeekParser(), f"{BLOCK}{CALL}edit{SEPARATOR}{{broken{END}{END_OF_BLOCK}"),
        (DeepSeekParser(), f"{CALL}function{SEPARATOR}edit\n```json\n{{}}\n{END}"),
        (HarmonyParser(), "no header at all"),
        (HarmonyParser(), "<|channel|>commentary to=functions.edit <|constrain|>json<|message|>{broken"),
        (HarmonyParser(), "<|channel|>commentary to=functions.edit <|constrain|>json<|message|>[1]<|call|>"),
        (HarmonyParser(), "<|channel|>elsewhere<|message|>text<|end|>"),
        (HarmonyParser(), "<|channel|>final"),
        (HermesParser(), '<tool_call>{"name": "edit", "parameters": {"line": 1}}</tool_call>'),
        (HermesParser(), '<tool_call>{"name": "edit", "arguments": {"line": 1e999}}</tool_call>'),
    ],
)
def test_what_is_not_exactly_a_call_stays_text(parser: ToolCallParser, text: str) -> None:
    assert parse(parser, text) == ParsedReply(text, ())


def test_good_calls_beside_malformed_ones_are_read() -> None:
    good = f'{CALL}edit{SEPARATOR}{{"path": "a"}}{END}'
    reply = parse(DeepSeekParser(), f"{BLOCK}{CALL}edit{SEPARATOR}oops{END}{good}{END_OF_BLOCK}")
    assert calls_of(reply) == [("edit", {"path": "a"})]
    assert reply.content == f"{BLOCK}{CALL}edit{SEPARATOR}oops{END}\n{END_OF_BLOCK}"
    reply = parse(QwenXmlParser(), f"<tool_call>oops</tool_call>\n{XML.format('a')}")
    assert reply.content == "<tool_call>oops</tool_call>"
    assert calls_of(reply) == [("edit", {"path": "a"})]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("path", "5", "5"),
        ("path", "null", "null"),
        ("line", "5", 5),
        ("line", " 5\n", 5),
        ("line", "five", "five"),
        ("line", "5.5", "5.5"),
        ("ratio", "1", 1),
        ("ratio", "1e999", "1e999"),
        ("all", "True", True),
        ("all", "false", False),
        ("all", "yes", "yes"),
        ("lines", "[1, 2]", [1, 2]),
        ("lines", "[1, 2", "[1, 2"),
        ("lines", "[1, 1e999]", "[1, 1e999]"),
        ("options", '{"a": [true]}', {"a": [True]}),
        ("options", '{"a": 1} and', '{"a": 1} and'),
        ("note", "null", None),
        ("note", "5", "5"),
        ("range", "[1, -1]", [1, -1]),
        ("range", "None", None),
        ("mode", "a", "a"),
        ("unknown", "5", "5"),
    ],
)
@pytest.mark.parametrize("parser", [QwenXmlParser(), GlmParser()], ids=["qwen_xml", "glm"])
def test_bare_arguments_get_the_type_of_the_schema(parser: ToolCallParser, key: str, text: str, value: object) -> None:
    written = {
        "qwen_xml": f"<tool_call>\n<function=edit>\n<parameter={key}>\n{text}\n</parameter>\n</function>\n</tool_call>",
        "glm": f"<tool_call>edit\n<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>",
    }[parser.format]
    assert calls_of(parse(parser, written)) == [("edit", {key: value})]
    assert calls_of(parse(parser, written, None)) == [("edit", {key: text})]


def test_harmony_tells_thinking_content_and_calls_apart() -> None:
    reply = parse(
        HarmonyParser(),
        "<|channel|>analysis<|message|>I think. <|end|><|start|>assistant<|channel|>analysis<|message|>More.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Done \n",
    )
    assert reply == ParsedReply("Done \n", (), "I think.\nMore.")


def test_mistral_ids_are_nine_letters_or_digits_and_different() -> None:
    parser = MistralParser()
    ids = [parser.call_id(n, salt) for salt in ("a", "b", "c") for n in range(2000)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in ids)
    assert parser.call_id(5, "a") == MistralParser().call_id(5, "a")
    assert HermesParser().call_id(5, "a") == "call_a_5"


@pytest.mark.parametrize(
    "parser",
    [QwenXmlParser(), GlmParser(), LlamaJsonParser(), MistralParser(), DeepSeekParser(), HarmonyParser()],
    ids=lambda parser: parser.format,
)
@pytest.mark.timeout(20)
def test_a_policy_that_repeats_itself_is_read_in_time(parser: ToolCallParser) -> None:
    for piece in (
        "<tool_call>\n<function=a>\n<parameter=b>\nx</parameter>\n",
        "<tool_call>a<arg_key>b</arg_key><arg_value>",
        '{"a\n',
        '[TOOL_CALLS][{"name":',
        "<|python_tag|>a.call(b='",
        f"{BLOCK}{CALL}a{SEPARATOR}{{",
        "<|channel|>commentary to=a<|message|>{",
    ):
        text = piece * 4000
        reply = parse(parser, text)
        assert reply.calls == ()
        assert "".join((reply.content or "").split()) == "".join(text.split())

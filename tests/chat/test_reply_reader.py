"""Reasoning, content and calls of a sampled turn, for every family; whole and as the text grows."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES
from builders.tiny_tokenizer import build_tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.chat import ChatTemplate, HermesParser, ParsedReply, ReplyReader, reader_for, reader_named
from drydock.chat.parsers import LlamaJsonParser
from drydock.chat.reasoning import MARKS
from drydock.chat.reply_reader import FORMATS
from drydock.errors import UserError

FORMAT_OF = {
    "qwen2.5": "hermes",
    "qwen3": "hermes",
    "qwen3.5": "qwen_xml",
    "llama3.1": "llama_json",
    "gemma3": "hermes",
    "glm4.6": "glm",
    "deepseek3.1": "deepseek",
    "deepseek3.1-thinking": "deepseek",
    "gpt-oss": "harmony",
    "mistral": "mistral",
}
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
                    "lines": {"type": "array", "items": {"type": "integer"}},
                    "options": {"type": "object"},
                },
            },
        },
    }
]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReplyReader]:
    folder = tmp_path_factory.mktemp("families")
    return {name: reader_for(family(folder / name)) for name, family in FAMILIES.items()}


def numbered() -> Any:
    numbers = itertools.count(1)
    return lambda: f"call_{next(numbers)}"


def grown(reader: ReplyReader, text: str, cuts: list[int]) -> tuple[ParsedReply, ParsedReply]:
    """The reply that the deltas add up to, and the one that the stream gives."""
    stream = reader.stream(numbered(), TOOLS)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    deltas = [delta for start, end in itertools.pairwise(places) for delta in stream.feed(text[start:end])]
    last, reply = stream.finish()
    deltas += last
    assert all(bool(delta.content) + bool(delta.reasoning) + (delta.call is not None) == 1 for delta in deltas)
    content = "".join(delta.content for delta in deltas)
    reasoning = "".join(delta.reasoning for delta in deltas)
    calls = tuple(delta.call for delta in deltas if delta.call is not None)
    assert (reply.content or "") == content
    return ParsedReply(reply.content, calls, reasoning or None), reply


def test_formats_are_told_by_the_templates(readers: dict[str, ReplyReader]) -> None:
    assert {name: reader.format for name, reader in readers.items()} == FORMAT_OF
    assert [name for name, reader in readers.items() if not reader.format_known] == ["gemma3"]
    assert {name for name, reader in readers.items() if reader.opens_reasoning} == {"qwen3.5", "deepseek3.1-thinking"}


def test_a_format_can_be_named(template: ChatTemplate, tmp_path: Path) -> None:
    assert [reader_named(name, template).format for name in FORMATS] == list(FORMATS)
    with pytest.raises(UserError, match=r"no tool-call format is called 'xml'; there are deepseek, glm, harmony,"):
        reader_named("xml", template)
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    assumed = reader_for(ChatTemplate.load(build_tiny_tokenizer(tmp_path, plain)))
    assert (assumed.format, assumed.format_known) == ("hermes", False)
    assert repr(assumed) == "ReplyReader('hermes', assumed)"


WORDS = st.text(st.sampled_from("abc é{}[]\"'\\<>/:,;=\n\t"), max_size=12)
VALUES = {
    "path": WORDS,
    "line": st.integers(-9, 9),
    "lines": st.lists(st.integers(0, 9), max_size=3),
    "options": st.dictionaries(WORDS, WORDS, max_size=2),
}
CALLS = st.lists(st.tuples(st.just("edit"), st.fixed_dictionaries({}, optional=VALUES)), max_size=3)
PROSE = st.from_regex(r"\A[a-z]{1,9}( [a-z.]{1,9}){0,3}\n?[a-z]{0,3}\Z")


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(FAMILIES)), content=PROSE | st.just(""), calls=CALLS, thinking=PROSE, cuts=st.data())
def test_what_a_family_writes_is_read_back(
    readers: dict[str, ReplyReader], name: str, content: str, calls: Any, thinking: str, cuts: st.DataObject
) -> None:
    family = FAMILIES[name]
    calls = calls[: family.calls]
    if name in ("llama3.1", "mistral") and calls:  # their templates write either
        content = ""
    thinking = thinking if family.thinks else ""
    text = family.reply_text(content, calls, thinking)
    reply = readers[name].parse(text, numbered(), TOOLS)
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == calls
    assert (reply.content or "").strip() == content.strip()
    assert reply.reasoning == (thinking.strip() or None)
    whole, told = grown(readers[name], text, cuts.draw(st.lists(st.integers(0, 4000), max_size=30)))
    assert whole == told == reply


PIECES = [
    *("<tool_call>", "</tool_call>", '{"name": "edit", "arguments": {"path": "a"}}', "<function=edit>", "</function>"),
    *("<parameter=path>", "</parameter>", "edit", "<arg_key>path</arg_key>", "<arg_value>", "</arg_value>"),
    *('{"name": "edit", "parameters": {}}', "<|python_tag|>", 'edit.call(path="a")', "[TOOL_CALLS]", "[ARGS]"),
    *('[{"name": "edit", "arguments": {}}]', '{"path": 1}', "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "```json", "```", "function", "<|channel|>"),
    *("<|message|>", "<|end|>", "<|call|>", "<|start|>", "assistant", "analysis", "final", "commentary"),
    *(" to=functions.edit", "<think>", "</think>", "[THINK]", "[/THINK]", "<", "{", "}", ";", ",", "\n", " ", "word"),
    *(
        '<tool_call>{"name": "edit", "arguments": {}}</tool_call>',
        "<tool_call><function=edit></function></tool_call>",
        "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>",
        '\n{"name": "edit", "parameters": {}}',
        '[TOOL_CALLS]edit[ARGS]{"path": "a"}',
        '<｜tool▁call▁begin｜>edit<｜tool▁sep｜>{"path": "a"}<｜tool▁call▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|channel|>analysis<|message|>",
        "<|start|>assistant<|channel|>final<|message|>",
        "<|start|>assistant<|channel|>commentary to=functions.edit<|message|>{}<|call|>",
    ),
]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=400, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14),
    cuts=st.lists(st.integers(0, 400), max_size=40),
    marks=st.sampled_from([None, *MARKS]),
    opened=st.booleans(),
    offered=st.booleans(),
)
def test_deltas_add_up_to_the_reply_however_the_text_is_cut(
    template: ChatTemplate, name: str, pieces: list[str], cuts: list[int], marks: Any, opened: bool, offered: bool
) -> None:
    reader = ReplyReader(reader_named(name, template).parser, marks, opens_reasoning=opened and marks is not None)
    reader = reader if offered else reader.without_calls()
    text = "".join(pieces)
    whole = reader.parse(text, numbered(), TOOLS)
    every = list(range(len(text) + 1))
    for told in (*grown(reader, text, cuts), *grown(reader, text, every)):
        assert told == whole
    assert offered or not whole.calls
    assert whole.content is None or whole.content or not (whole.calls or whole.reasoning)


def think(text: str, *, opened: bool = False) -> ParsedReply:
    reader = ReplyReader(HermesParser(), MARKS[0], opens_reasoning=opened)
    whole, told = grown(reader, text, list(range(len(text))))
    assert whole == told
    return whole


CALL = '<tool_call>\n{"name": "edit", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "opened", "content", "reasoning", "calls"),
    [
        ("<think>\nI think.\n</think>\n\nDone \n", False, "Done \n", "I think.", 0),
        ("I think.\n</think>\n\nDone", True, "Done", "I think.", 0),
        ("\n<think></think>\nDone", False, "Done", None, 0),
        ("<think>cut by the lim", False, None, "cut by the lim", 0),
        ("cut by the lim", True, None, "cut by the lim", 0),
        (f"<think>I could {CALL} but</think>{CALL}", False, None, f"I could {CALL} but", 1),
        (f"<think>I could {CALL} but", False, None, f"I could {CALL} but", 0),
        (f"I forget to close\n{CALL}\n{CALL}\n", True, None, "I forget to close", 2),
        (f"quoted {CALL} then\n{CALL}", True, None, f"quoted {CALL} then", 1),
        ("<think>only</think>\n", False, None, "only", 0),
        ("Done <think>late</think>", False, "Done <think>late</think>", None, 0),
        ("stray </think> mark", False, "stray </think> mark", None, 0),
        ("a</think>b</think>c", True, "b</think>c", "a", 0),
        ("", False, "", None, 0),
        ("<thi", False, "<thi", None, 0),
        (" \n", False, " \n", None, 0),
    ],
)
def test_thinking_is_told_apart(
    text: str, opened: bool, content: str | None, reasoning: str | None, calls: int
) -> None:
    reply = think(text, opened=opened)
    assert (reply.content, reply.reasoning, len(reply.calls)) == (content, reasoning, calls)


def test_text_is_told_as_soon_as_it_is_certain() -> None:
    stream = ReplyReader(HermesParser(), MARKS[0]).stream(numbered(), TOOLS)

    def fed(text: str) -> list[tuple[str, str, str | None]]:
        return [(d.reasoning, d.content, d.call and d.call.id) for d in stream.feed(text)]

    assert fed("<think>\nOne") == [("One", "", None)]
    assert fed(" two\n</thi") == [(" two", "", None)]
    assert fed("nk>\n\nA < b ") == [("", "A < b", None)]
    assert fed("<tool") == []
    assert fed("s> are") == [("", " <tools> are", None)]
    assert fed(CALL[:-1]) == []
    assert fed(CALL[-1] + " and") == [("", "", "call_1"), ("", "\nand", None)]
    assert stream.finish()[1].content == "A < b <tools> are\nand"


def test_calls_stay_text_where_no_tools_are_offered(readers: dict[str, ReplyReader]) -> None:
    for name, family in FAMILIES.items():
        if family.calls:
            text = family.reply_text("", [("edit", {"path": "a"})], "")
            reader = readers[name].without_calls()
            reply = reader.parse(text, numbered(), None)
            assert reply.calls == ()
            assert "edit" in (reply.content or "")
            assert reader.format == FORMAT_OF[name]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('edit {"name": "edit", "parameters": {}}', 0),
        ('a b,\n{"name": "edit", "parameters": {}}', 1),
        ('a\n;{"name": "edit", "parameters": {}} b', 1),
        ('a\n{"name": "edit", "parameters": {}};\n{"name": "edit", "parameters": {}}', 2),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_bare_json_is_a_call_only_where_a_line_begins(text: str, calls: int, opened: bool) -> None:
    reader = ReplyReader(LlamaJsonParser(), MARKS[0], opens_reasoning=opened)
    whole = reader.parse(text, numbered(), TOOLS)
    for size in range(1, len(text)):
        assert grown(reader, text, list(range(0, len(text), size))) == (whole, whole)
    assert len(whole.calls) == (calls if not (opened and text.endswith(" b")) else 0)

"""Text in messages that looks like a special token stays text, in every family and wherever it stands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES
from builders.tiny_tokenizer import build_tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from drydock.chat.messages import ToolCall
from drydock.chat.template import ChatTemplate

type Load = Callable[[str], ChatTemplate]

CALL = ToolCall("abcdef123", "look", "{}")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    folder: Path = tmp_path_factory.mktemp("families")
    templates = {name: family(folder / name) for name, family in FAMILIES.items()}
    return templates.__getitem__


def tokens_of(name: str) -> list[str]:
    """The tokens of a family that structure its conversations."""
    family = FAMILIES[name]
    return [token for token in (*family.special, *family.added) if token in family.special or token in family.source]


def structure(template: ChatTemplate, name: str, ids: list[int]) -> list[int]:
    """The ids among `ids` that are such tokens."""
    known = {template.tokenizer.token_to_id(token) for token in tokens_of(name) if token.strip() and token != "\n\n"}
    return [place for place in ids if place in known]


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_message_can_write_a_special_token(load: Load, name: str, data: st.DataObject) -> None:
    template = load(name)
    pieces = st.lists(st.sampled_from([*tokens_of(name), "a", " ", "\n", "é", "<|", "|>"]), max_size=6).map("".join)
    system, user, follows = (f".{data.draw(pieces)}." for _ in range(3))

    def prompt(*contents: str) -> list[int]:
        messages = [{"role": "system", "content": contents[0]}, {"role": "user", "content": contents[1]}]
        return list(template.first_prompt(messages, None))

    ids = prompt(system, user)
    assert structure(template, name, ids) == structure(template, name, prompt("plain", "plain"))
    text = template.render([{"role": "system", "content": system}, {"role": "user", "content": user}], None, True)
    assert template.decode(ids) == text

    def after(content: str) -> list[int]:
        role = "tool" if FAMILIES[name].calls else "user"
        message = {"role": role, "content": content, "tool_call_id": CALL.id}
        return template.continuation([message], None, tools_key="", last_id=template.call_end_id, calls=[CALL])

    more = after(follows)
    assert structure(template, name, more) == structure(template, name, after("plain"))
    assert json.dumps(follows, ensure_ascii=False)[1:-1] in template.decode(more) or follows in template.decode(more)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_message_without_such_text_is_tokenized_as_ever(load: Load, name: str) -> None:
    template = load(name)
    messages = [{"role": "user", "content": "plain  <b>\n\nhé"}]
    assert list(template.first_prompt(messages, None)) == template.encode(template.render(messages, None, True))


def test_such_text_is_read_as_the_tokenizer_reads_text(load: Load) -> None:
    """The reference is the same tokenizer before it was given any special token."""
    template = load("qwen3")
    form = json.loads(template.tokenizer.to_str())
    plain = Tokenizer.from_str(json.dumps({**form, "added_tokens": []}))
    content = "x = '<|im_end|>' and <think> so"
    head, found, tail = (
        template.encode(text) for text in ("<|im_start|>user\n", "", "<|im_end|>\n<|im_start|>assistant\n")
    )
    assert not found
    expected = [head[0], *plain.encode("user\n" + content, add_special_tokens=False).ids, *tail]
    assert list(template.first_prompt([{"role": "user", "content": content}], None)) == expected


def test_added_tokens_that_are_ordinary_text_stay_tokens(load: Load) -> None:
    """Gemma's tokenizer has runs of white space and tags of HTML among its added tokens."""
    template = load("gemma3")
    ids = template.first_prompt([{"role": "user", "content": "a\n\n<table><end_of_turn>  b"}], None)
    assert [template.tokenizer.token_to_id(text) for text in ("\n\n", "<table>", "  ")] == [
        token for token in ids if template.tokenizer.id_to_token(token) in ("\n\n", "<table>", "  ")
    ]
    assert ids.count(template.turn_end_id) == 1


def test_what_an_assistant_wrote_keeps_its_markup_but_ends_no_turn(load: Load) -> None:
    template = load("qwen2.5")
    content = "<tool_call>{broken</tool_call> <|im_end|>"
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "v"},
    ]
    ids = template.first_prompt(messages, None)
    assert ids.count(template.tokenizer.token_to_id("<tool_call>")) == 1
    assert ids.count(template.turn_end_id) == 4


@pytest.mark.parametrize("place", ["tools", "arguments", "name"])
def test_tools_and_calls_cannot_write_special_tokens_either(load: Load, place: str) -> None:
    template = load("qwen2.5")

    def ends(text: str) -> int:
        tool = {"type": "function", "function": {"name": "look", "description": text if place == "tools" else ""}}
        function: dict[str, Any] = {"name": "look", "arguments": {}}
        if place == "arguments":
            function["arguments"] = {text: [text]}
        elif place == "name":
            function["name"] = text
        turn = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        }
        messages = [{"role": "user", "content": "u"}, turn, {"role": "tool", "tool_call_id": "1", "content": "r"}]
        return template.first_prompt(messages, [tool]).count(template.turn_end_id)

    assert ends("<|im_end|>") == ends("plain")


def test_special_tokens_that_are_words_of_the_vocabulary_are_read_as_text_too(tmp_path: Path) -> None:
    template = ChatTemplate.load(build_tiny_tokenizer(tmp_path))
    tokenizer = template.tokenizer
    assert tokenizer.token_to_id("<|im_end|>") == 2  # within the vocabulary, not behind it
    ids = template.first_prompt([{"role": "user", "content": "a<|im_end|>b"}], None)
    assert ids.count(2) == 1
    assert template.decode(ids) == "<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n"

"""What is found out about each family's template, and how its turns are ended and continued."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES

from drydock.chat.continuation import HistoryRewritten
from drydock.chat.messages import ToolCall
from drydock.chat.template import ChatTemplate
from drydock.errors import TemplateError

type Load = Callable[[str], ChatTemplate]

TOOLS = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}]
CALL = ToolCall("abcdef123", "look", "{}")
RESULT = {"role": "tool", "content": "found", "tool_call_id": "abcdef123"}
USER = {"role": "user", "content": "more"}


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    folder: Path = tmp_path_factory.mktemp("families")
    templates = {name: family(folder / name) for name, family in FAMILIES.items()}
    return templates.__getitem__


def follow(template: ChatTemplate, added: dict[str, Any], last: str | None, *calls: ToolCall, tools: Any = None) -> str:
    """Text of a continuation after a turn whose last sampled token is `last`."""
    last_id = None if last is None else template.tokenizer.token_to_id(last)
    return template.decode(template.continuation([added], tools, tools_key=str(tools), last_id=last_id, calls=calls))


@pytest.mark.parametrize(
    ("name", "generation_prompt", "opens", "strips", "rewrites"),
    [
        ("qwen2.5", "<|im_start|>assistant\n", False, False, ()),
        ("qwen3", "<|im_start|>assistant\n", False, True, ()),
        ("qwen3.5", "<|im_start|>assistant\n<think>\n", True, True, ()),
        ("llama3.1", "<|start_header_id|>assistant<|end_header_id|>\n\n", False, False, ()),
        ("gemma3", "<start_of_turn>model\n", False, False, ()),
        ("glm4.6", "<|assistant|>", False, True, ()),
        ("deepseek3.1", "<｜Assistant｜></think>", False, True, ()),
        ("deepseek3.1-thinking", "<｜Assistant｜><think>", True, True, ()),
        ("gpt-oss", "<|start|>assistant", False, True, ()),
        ("mistral", "", False, False, ("a user message follows, with tools",)),
    ],
)
def test_what_the_probe_finds(
    load: Load, name: str, generation_prompt: str, opens: bool, strips: bool, rewrites: tuple[str, ...]
) -> None:
    facts = load(name).facts
    assert facts.generation_prompt == generation_prompt
    assert (facts.opens_reasoning, facts.strips_reasoning, facts.rewrites_history) == (opens, strips, rewrites)


def test_a_user_message_like_the_ones_that_probe_a_template_rewrites_history_as_any_other(load: Load) -> None:
    """Mistral's template tells the tools before each message that equals the last user message."""
    with pytest.raises(HistoryRewritten):
        follow(load("mistral"), {"role": "user", "content": "probe"}, "</s>", tools=TOOLS)


@pytest.mark.parametrize("name", FAMILIES)
def test_sampling_stops_at_every_end_of_the_family(load: Load, name: str) -> None:
    family, template = FAMILIES[name], load(name)
    ids = {template.tokenizer.token_to_id(end) for end in (*family.ends, family.stop, family.call_stop)}
    assert set(template.stop_ids) == ids
    assert template.turn_end_id == template.tokenizer.token_to_id(family.stop)
    if family.calls:
        assert template.call_end_id == template.tokenizer.token_to_id(family.call_stop)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_end_that_was_sampled_is_not_repeated_and_one_that_was_cut_off_is_added(load: Load, name: str) -> None:
    """The reference is the template's own rendering of the longer conversation."""
    family, template = FAMILIES[name], load(name)
    whole = template.render(
        [USER, {"role": "assistant", "content": "said"}, {"role": "user", "content": "x"}], None, True
    )
    after = whole.rpartition("said")[2]
    cut = follow(template, {"role": "user", "content": "x"}, None)
    assert cut == after
    ended = follow(template, {"role": "user", "content": "x"}, family.stop)
    assert after in (family.stop + ended, "<|end|>" + ended)
    assert after.removesuffix(ended)


@pytest.mark.parametrize("stop", ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"])
def test_llama_ends_a_turn_in_several_ways(load: Load, stop: str) -> None:
    result = '<|start_header_id|>ipython<|end_header_id|>\n\n"found"<|eot_id|>'
    asked = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    assert follow(load("llama3.1"), RESULT, stop, CALL) == result + asked
    assert follow(load("llama3.1"), RESULT, None, CALL) == "<|eot_id|>" + result + asked


def test_a_second_call_that_the_template_would_refuse_does_not_hinder(load: Load) -> None:
    second = ToolCall("abcdef124", "look", "{}")
    results = [RESULT, {**RESULT, "tool_call_id": second.id}]
    template = load("llama3.1")
    ids = template.continuation(results, None, tools_key="", last_id=template.call_end_id, calls=(CALL, second))
    assert template.decode(ids).count("ipython") == 2


def test_harmony_names_the_tool_of_the_call_and_ends_turns_as_they_ended(load: Load) -> None:
    template = load("gpt-oss")
    result = '<|start|>functions.look to=assistant<|channel|>commentary<|message|>"found"<|end|><|start|>assistant'
    assert follow(template, RESULT, "<|call|>", CALL) == result
    assert follow(template, RESULT, None, CALL) == "<|call|>" + result
    user = "<|start|>user<|message|>more<|end|><|start|>assistant"
    assert follow(template, USER, "<|return|>") == user
    assert follow(template, USER, "<|end|>") == user  # cut by the limit right behind the analysis
    assert follow(template, USER, None) == "<|end|>" + user
    with pytest.raises(TemplateError, match="A tool message without a call before it"):
        follow(template, RESULT, "<|call|>")


def test_glm_ends_a_turn_with_the_token_of_the_next_role(load: Load) -> None:
    template = load("glm4.6")
    result = "\n<tool_response>\nfound\n</tool_response><|assistant|>"
    assert follow(template, RESULT, "<|observation|>", CALL) == result
    assert follow(template, RESULT, None, CALL) == "<|observation|>" + result
    assert follow(template, USER, "<|user|>") == "\nmore<|assistant|>"
    # a role that was sampled and does not follow stays, and the one that follows is written
    assert follow(template, RESULT, "<|user|>", CALL) == "<|observation|>" + result


def test_deepseek_asks_for_nothing_after_a_tool_result(load: Load) -> None:
    result = "<｜tool▁output▁begin｜>found<｜tool▁output▁end｜>"
    assert follow(load("deepseek3.1"), RESULT, "<｜end▁of▁sentence｜>", CALL) == result


def test_mistral_moves_its_tools_when_a_user_message_follows(load: Load) -> None:
    template = load("mistral")
    assert follow(template, USER, "</s>") == "[INST]more[/INST]"
    assert "found" in follow(template, RESULT, "</s>", CALL, tools=TOOLS)
    with pytest.raises(HistoryRewritten):
        follow(template, USER, "</s>", tools=TOOLS)


def test_gemma_refuses_what_it_cannot_say(load: Load) -> None:
    template = load("gemma3")
    with pytest.raises(TemplateError, match="does not write tool definitions"):
        template.first_prompt([USER], TOOLS)
    with pytest.raises(TemplateError, match="roles must alternate"):
        follow(template, RESULT, "<end_of_turn>", CALL)
    with pytest.raises(TemplateError, match="roles must alternate"):
        template.first_prompt([USER, USER], None)
    system = template.render([{"role": "system", "content": "s"}, USER], None, True)
    assert system == "<bos><start_of_turn>user\ns\n\nmore<end_of_turn>\n<start_of_turn>model\n"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_whole_history_is_rendered_as_the_template_writes_it(load: Load, name: str) -> None:
    family, template = FAMILIES[name], load(name)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, USER]
    if family.calls:
        call = {"id": CALL.id, "type": "function", "function": {"name": "look", "arguments": {"place": "hé"}}}
        messages += [{"role": "assistant", "content": "", "reasoning_content": "why", "tool_calls": [call]}, RESULT]
    messages += [
        {"role": "assistant", "content": "said", "reasoning_content": "hidden"},
        {"role": "user", "content": "x"},
    ]
    tools = TOOLS if family.calls else None
    text = template.render(messages, tools, True)
    for _ in range(2):  # the second time from the cache
        assert list(template.first_prompt(messages, tools)) == template.encode(text)
    assert "hidden" not in text
    assert ('{"place": "hé"}' in text) == (family.calls > 0 and name not in ("qwen3.5", "glm4.6"))


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("qwen3", "<think>\nwhy\n</think>\n\n"),
        ("qwen3.5", "<think>\nwhy\n</think>\n\n"),
        ("glm4.6", "\n<think>why</think>"),
        ("gpt-oss", "<|channel|>analysis<|message|>why<|end|>"),
    ],
)
def test_thinking_is_given_under_the_name_that_the_template_reads(load: Load, name: str, written: str) -> None:
    call = {"id": CALL.id, "type": "function", "function": {"name": "look", "arguments": {}}}
    turn = {"role": "assistant", "content": "", "reasoning_content": "why", "tool_calls": [call]}
    assert written in load(name).render([USER, turn, RESULT], None, True)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_given_turn_is_tokenized_as_the_policy_would_sample_it(load: Load, name: str) -> None:
    """The reference is the family's own spelling of a sampled turn."""
    family, template = FAMILIES[name], load(name)
    reasoning = "why" if family.thinks and name != "deepseek3.1-thinking" else ""
    message: dict[str, Any] = {"role": "assistant", "content": "said", "reasoning_content": reasoning}
    if name == "deepseek3.1-thinking":
        with pytest.raises(TemplateError, match="does not write an assistant turn after its generation prompt"):
            template.turn_ids([USER, message], None)
        return
    assert list(template.turn_ids([USER, message], None)) == family.sampled_ids(template, "said", (), reasoning)
    if family.calls and name != "mistral":  # whose model does not write the ids of its calls
        call = {"id": CALL.id, "type": "function", "function": {"name": "look", "arguments": {"place": "hé"}}}
        turn = {"role": "assistant", "content": "", "reasoning_content": reasoning, "tool_calls": [call]}
        expected = family.sampled_ids(template, "", [("look", {"place": "hé"})], reasoning)
        assert list(template.turn_ids([USER, turn], TOOLS)) == expected


def test_a_given_turn_that_spells_its_end_does_not_end_there(load: Load) -> None:
    template = load("qwen2.5")
    ids = template.turn_ids([USER, {"role": "assistant", "content": "a <|im_end|> b"}], None)
    assert ids.count(template.turn_end_id) == 1
    assert template.decode(ids) == "a <|im_end|> b<|im_end|>"

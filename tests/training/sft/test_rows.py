import json
from pathlib import Path

import pytest
from builders.chat_families.qwen import QWEN3
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.chat.messages import parse_message
from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError
from drydock.training.sft.rows import supervised_row

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"place": "here"}'}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
CONVERSATION = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Where is é?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "é is here"},
    {"role": "assistant", "content": "Here."},
    {"role": "user", "content": "Thanks"},
]


def load(folder: Path, *edit: str) -> ChatTemplate:
    """The tiny tokenizer's template, with `edit[0]` in it replaced by `edit[1]`."""
    model = build_tiny_tokenizer(folder / "model")
    if edit:
        file = model / "chat_template.jinja"
        if not file.is_file():
            settings = json.loads((model / "tokenizer_config.json").read_text())
            file.write_text(settings["chat_template"])
        source = file.read_text()
        assert edit[0] in source
        file.write_text(source.replace(*edit))
    return ChatTemplate.load(model)


def row_of(template: ChatTemplate, messages: list[dict], tools: list[dict] | None = None):
    parsed = [parse_message(message, place) for place, message in enumerate(messages)]
    return supervised_row(parsed, tools, template, "data.jsonl:7")


def test_the_row_is_the_whole_rendering_with_mask_1_on_what_the_assistant_says(tmp_path: Path):
    """Independent reference: the template applied once to everything up to the last assistant turn."""
    template = load(tmp_path)
    row = row_of(template, CONVERSATION, TOOLS)
    forms = [parse_message(message, place).template_form() for place, message in enumerate(CONVERSATION[:-1])]
    whole = template.render(forms, TOOLS, False)
    assert template.decode(row.token_ids) == whole.rstrip("\n")
    assert list(row.token_ids) == template.encode(whole.rstrip("\n"))
    turns, current = [], []
    for token, own in zip([*row.token_ids, 0], [*row.loss_mask, 0], strict=True):
        if own:
            current.append(token)
        elif current:
            turns.append(template.decode(current))
            current = []
    call = '<tool_call>\n{"name": "look", "arguments": {"place": "here"}}\n</tool_call>'
    assert turns == [f"I look.\n{call}{template.turn_end}", f"Here.{template.turn_end}"]


def test_a_turn_is_rendered_where_it_stands(tmp_path: Path):
    """A template that writes calls only where tools are given: the mask follows it."""
    template = load(tmp_path, "for call in message.tool_calls or []", "for call in (message.tool_calls or []) if tools")
    spoken = [
        template.decode([t for t, own in zip(r.token_ids, r.loss_mask, strict=True) if own])
        for r in (row_of(template, CONVERSATION, TOOLS), row_of(template, CONVERSATION))
    ]
    assert "<tool_call>" in spoken[0]
    assert "<tool_call>" not in spoken[1]


def test_a_template_that_begins_a_turn_otherwise_than_it_asks_for_one_is_refused(tmp_path: Path):
    asks = "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n"
    template = load(tmp_path, asks, f"{asks}Sure: ")
    with pytest.raises(
        ConfigError, match=r"^data\.jsonl:7: .*does not write an assistant turn after its generation prompt"
    ):
        row_of(template, CONVERSATION)


def test_a_template_that_writes_something_after_a_turn_is_refused(tmp_path: Path):
    asks = "{%- if add_generation_prompt %}"
    template = load(
        tmp_path, asks, "{%- if not add_generation_prompt and messages | length > 2 %}(end){% endif %}" + asks
    )
    with pytest.raises(ConfigError, match=r"^data\.jsonl:7: .*writes '\\n\(end\)' after the end of an assistant turn"):
        row_of(template, CONVERSATION)


def test_call_ids_that_are_used_twice_change_nothing(tmp_path: Path):
    """The ledger finds its place by them, so equal ones must not send a later turn to an earlier place."""
    template = load(tmp_path)
    talk = [CONVERSATION[1]]
    for n in range(2):
        talk += [{"role": "assistant", "content": None, "tool_calls": [CALL]}]
        talk += [{"role": "tool", "tool_call_id": "c1", "content": f"result {n}"}]
    talk += [{"role": "assistant", "content": "Done."}]
    row = row_of(template, talk)
    forms = [parse_message(message, place).template_form() for place, message in enumerate(talk)]
    assert list(row.token_ids) == template.encode(template.render(forms, None, False).rstrip("\n"))


def test_thinking_is_trained_where_the_template_writes_it(tmp_path: Path):
    template = QWEN3(tmp_path)
    thinking = {"role": "assistant", "content": "Here.", "reasoning_content": "Not there."}
    row = row_of(template, [{"role": "user", "content": "Where?"}, thinking])
    trained = [token for token, own in zip(row.token_ids, row.loss_mask, strict=True) if own]
    assert template.decode(trained) == "<think>\nNot there.\n</think>\n\nHere.<|im_end|>"


def test_thinking_that_the_template_does_not_write_is_refused(tmp_path: Path):
    thinking = {"role": "assistant", "content": "Here.", "reasoning_content": "Not there."}
    with pytest.raises(ConfigError, match=r"data\.jsonl:7: .*does not write reasoning_content \(messages\[1\]\)"):
        row_of(load(tmp_path), [{"role": "user", "content": "Where?"}, thinking])

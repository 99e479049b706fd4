"""Rendering a conversation in full and growing it turn by turn through the ledger give the same, in every family.

The template applied once to the whole conversation is the reference. Where thinking is involved, both texts are
compared without it: the ledger keeps what was sampled, a full rendering may hide it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES
from builders.proxy_calls import TOOLS
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.chat.messages import Message, ToolCall, parse_message
from drydock.chat.parsers import ParsedReply
from drydock.chat.template import ChatTemplate
from drydock.proxy.ledger import Ledger
from drydock.proxy.sampler import SampledTurn

# Text as files and commands have it: white space at the edges, other scripts, what looks like markup.
_PIECES = ["a", "ls -la", " ", "  ", "\n", "\n\n", "é", "日本", "🙂", '"', "{", "0.5", "\t", "'", "<b>"]
_ENDS = [
    "<|im_end|>",
    "<|eot_id|>",
    "</s>",
    "<|end|>",
    "<|user|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<|im_start|>",
]
_texts = st.lists(st.sampled_from(_PIECES + _ENDS), max_size=8).map("".join)
_words = st.text("abcdefghij é", min_size=1, max_size=12).map(str.strip).filter(bool)
_arguments = st.dictionaries(st.sampled_from(["command", "path", "n"]), _words | st.integers() | st.none(), max_size=3)

_THINKING = {
    "qwen3": r"<think>.*?</think>\n\n",
    "qwen3.5": r"<think>.*?</think>\n\n",
    "glm4.6": r"<think>.*?</think>",
    "deepseek3.1-thinking": r"(<think>.*?)?</think>",
    "gpt-oss": r"<\|start\|>assistant<\|channel\|>analysis<\|message\|>.*?<\|end\|>",
    "mistral": r', "id": "call\d{5}"',
}


@dataclass(frozen=True)
class _Turn:
    content: str
    calls: list[dict[str, Any]]
    reasoning: str
    cut: bool
    observation: str


@st.composite
def _turns(draw: st.DrawFn, most_calls: int, thinks: bool, *, talks_beside_calls: bool) -> list[_Turn]:
    turns = []
    for _ in range(draw(st.integers(1, 5))):
        calls = draw(st.lists(_arguments, max_size=most_calls))
        content = draw(_words if not calls else st.just("") | _words if talks_beside_calls else st.just(""))
        reasoning = draw(st.just("") | _words) if thinks else ""
        turns.append(_Turn(content, calls, reasoning, draw(st.booleans()), draw(_texts)))
    return turns


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ChatTemplate]:
    folder: Path = tmp_path_factory.mktemp("families")
    templates = {name: family(folder / name) for name, family in FAMILIES.items()}
    return templates.__getitem__


@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_full_rendering_equals_incremental_rendering(
    loaded: Callable[[str], ChatTemplate], name: str, data: st.DataObject
) -> None:
    family, template = FAMILIES[name], loaded(name)
    tools = data.draw(st.sampled_from([None, TOOLS])) if family.calls else None
    system = data.draw(st.none() | _texts)
    turns = data.draw(
        _turns(family.calls, family.thinks, talks_beside_calls=name not in ("llama3.1", "mistral", "gpt-oss"))
    )
    messages = [] if system is None else [Message("system", system)]
    messages.append(Message("user", data.draw(_texts)))
    ledger, made = Ledger(template), 0
    for number, turn in enumerate(turns):
        prompt = ledger.extend(messages, tools)
        _check(name, template, list(prompt.ids), messages, tools)
        calls = [("terminal", arguments) for arguments in turn.calls]
        ids = family.sampled_ids(template, turn.content, calls, turn.reasoning, ended=not turn.cut)
        told = [
            ToolCall(f"call{made + place:05d}", "terminal", json.dumps(arguments, ensure_ascii=False))
            for place, arguments in enumerate(turn.calls)
        ]
        made += len(told)
        sampled = SampledTurn(tuple(ids), (-0.5,) * len(ids), 0, "length" if turn.cut else "stop", "")
        ledger.record(prompt, sampled, ParsedReply(turn.content or None, tuple(told), turn.reasoning or None))
        messages.append(Message("assistant", turn.content, tuple(told), reasoning=turn.reasoning))
        messages += [Message("tool", turn.observation, tool_call_id=call.id) for call in told]
        if not told:
            # a family that tells its tools before the last of equal user messages would tell them before each
            messages.append(Message("user", f"{number}{turn.observation}"))
    if template.rewrites_history:
        assert set(ledger.branch_reasons) <= {"template_rewrites"}
    else:
        assert not ledger.branch_reasons
        assert len(ledger.samples()) == 1


def _check(
    name: str, template: ChatTemplate, ids: list[int], messages: list[Message], tools: list[dict[str, Any]] | None
) -> None:
    forms = [message.template_form() for message in messages]
    text, full = template.decode(ids), template.render(forms, tools, True)
    if text == full:
        assert ids == list(template.first_prompt(forms, tools))
    opened = template.generation_prompt if template.opens_reasoning else ""
    hidden = [
        re.sub(_THINKING.get(name, "(?!)"), "", one.removesuffix(opened), flags=re.DOTALL).replace(
            "<|return|>", "<|end|>"
        )
        for one in (text, full)
    ]
    assert hidden[0] == hidden[1]


def test_template_form_keeps_arguments_that_are_no_object_as_text() -> None:
    message = Message("assistant", "", (ToolCall("1", "a", "[1"), ToolCall("2", "b", '{"x": 1}')))
    arguments = [call["function"]["arguments"] for call in message.template_form()["tool_calls"]]
    assert arguments == ["[1", {"x": 1}]


@pytest.mark.parametrize("spelling", ["reasoning_content", "reasoning"])
def test_thinking_has_two_names_on_the_wire(spelling: str) -> None:
    message = parse_message({"role": "assistant", "content": "c", spelling: "t"}, 0)
    assert message == Message("assistant", "c", reasoning="t")
    assert message.wire_form() == {"role": "assistant", "content": "c", "reasoning_content": "t"}

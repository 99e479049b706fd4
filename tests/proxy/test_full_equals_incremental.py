"""Rendering a conversation in full and growing it turn by turn through the ledger give the same token ids."""

from typing import Any

from builders.ledger_driver import LedgerDriver, read
from builders.proxy_calls import TOOLS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drydock.chat.messages import Message, ToolCall
from drydock.chat.template import ChatTemplate

# Text as files and commands have it: white space at the edges, other scripts, and the template's own markers.
_pieces = st.sampled_from(
    [
        "a",
        "ls -la",
        " ",
        "  ",
        "\n",
        "\n\n",
        "é",
        "日本",
        "🙂",
        '"',
        "{",
        "<tool_response>",
        "</think>",
        "0.5",
        "\t",
        "'",
    ]
)
_texts = st.lists(_pieces, max_size=8).map("".join)
_words = st.text("abcdefghij é", min_size=1, max_size=12).map(str.strip).filter(bool)
_arguments = st.dictionaries(st.sampled_from(["command", "path", "n"]), _texts | st.integers() | st.none(), max_size=3)


@st.composite
def _replies(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """Content and the arguments of each call; at least one of the two."""
    calls = draw(st.lists(_arguments, max_size=3))
    return draw(_words if not calls else st.just("") | _words), calls


def _canonical(template: ChatTemplate, content: str, calls: list[dict[str, Any]]) -> str:
    """The text in which the template itself writes such a turn."""
    form = {"role": "assistant", "content": content}
    function_calls = [{"function": {"name": "terminal", "arguments": arguments}} for arguments in calls]
    text = template.render([{"role": "user", "content": ""}, {**form, "tool_calls": function_calls}], None, False)
    return text.rpartition("<|im_start|>assistant\n")[2].removesuffix("<|im_end|>\n")


@given(
    system=st.none() | _texts,
    task=_texts,
    tools=st.sampled_from([None, TOOLS]),
    turns=st.lists(st.tuples(_replies(), st.booleans(), _texts), min_size=1, max_size=5),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_full_rendering_equals_incremental_rendering(
    template: ChatTemplate,
    system: str | None,
    task: str,
    tools: list[dict[str, Any]] | None,
    turns: list[tuple[tuple[str, list[dict[str, Any]]], bool, str]],
) -> None:
    driver = LedgerDriver(template)
    messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": task})
    for (content, calls), cut, observation in turns:
        prompt = driver.extend(messages, tools)
        forms = [message.template_form() for message in read(messages)]
        assert list(prompt.ids) == template.encode(template.render(forms, tools, True))
        message = driver.answer(prompt, _canonical(template, content, calls), ended=not cut)
        assert len(message.get("tool_calls", ())) == len(calls)
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": observation}
            for call in message.get("tool_calls", ())
        ] or [{"role": "user", "content": observation}]
    assert not driver.ledger.branch_reasons
    assert len(driver.ledger.samples()) == 1


def test_template_form_keeps_arguments_that_are_no_object_as_text() -> None:
    message = Message("assistant", "", (ToolCall("1", "a", "[1"), ToolCall("2", "b", '{"x": 1}')))
    arguments = [call["function"]["arguments"] for call in message.template_form()["tool_calls"]]
    assert arguments == ["[1", {"x": 1}]

"""The ledger over every template family: tool turns, a repair, another user message, and back to the first history."""

from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES, Family
from builders.ledger_driver import LedgerDriver
from builders.proxy_calls import TOOLS, tool_result

from drydock.chat.reply_reader import reader_for
from drydock.proxy.audit import audit
from drydock.proxy.ledger import Prompt, Thinking

CALLING = [family for family in FAMILIES.values() if family.calls]


class FamilyDriver(LedgerDriver):
    """A ledger driver that samples in the family's words, with its stop tokens."""

    def __init__(self, family: Family, folder: Path, thinking: Thinking) -> None:
        template = family(folder)
        super().__init__(template, reader_for(template), thinking=thinking)
        self.family = family

    def say(self, messages: list[dict[str, Any]], command: str | None) -> tuple[Prompt, dict[str, Any]]:
        """One turn: a call with `command`, or text."""
        calls = [("terminal", {"command": command})] if command else []
        reasoning = "I think." if self.family.thinks else ""
        content = "" if calls else "So."
        ids = self.family.sampled_ids(self.template, content, calls, reasoning)
        prompt = self.extend(messages, TOOLS)
        assert not prompt.repeat
        return prompt, self.answer(prompt, "", ids=ids[:-1], stop=ids[-1])


@pytest.mark.parametrize("family", CALLING, ids=lambda family: family.name)
@pytest.mark.parametrize("thinking", ["keep", "template"])
def test_a_family(family: Family, thinking: Thinking, tmp_path: Path) -> None:
    driver = FamilyDriver(family, tmp_path, thinking)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Begin."}]
    for command in ("a", "b"):
        prompt, message = driver.say(messages, command)
        assert prompt.reason is None
        assert len(message["tool_calls"]) == 1
        message.pop("reasoning_content", None)  # as most harnesses do
        messages += [message, tool_result(message, f"result of {command}")]
    repaired = [dict(message) for message in messages]
    call = repaired[1]["tool_calls"][0]
    changed = {**call, "function": {**call["function"], "arguments": '{"command": "mended"}'}}
    repaired[1] = {**repaired[1], "tool_calls": [changed]}
    prompt, _ = driver.say(repaired, None)
    assert prompt.reason == "call_repaired"
    shown = driver.template.decode(prompt.ids)
    assert "mended" in shown
    assert "result of b" in shown
    back, message = driver.say(messages, None)
    assert (back.reason, back.branch) == (None, 0)
    message.pop("reasoning_content", None)
    asked, _ = driver.say([*messages, message, {"role": "user", "content": "Go on."}], None)
    stripped = thinking == "template" and family.thinks and driver.template.strips_reasoning
    assert asked.reason in ("thinking_stripped" if stripped else None, "template_rewrites")
    assert (asked.reason == "template_rewrites") <= bool(driver.template.rewrites_history)
    record = driver.record()
    result = audit(record)
    assert result.clean
    assert result.trained_tokens == sum(len(turn.sampled_ids) for turn in record.turns)
    assert driver.extend([*messages, message, {"role": "user", "content": "Go on."}], TOOLS).repeat

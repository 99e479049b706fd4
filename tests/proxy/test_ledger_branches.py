"""Which request extends the recorded history, which leaves it, and what the reason is called."""

from typing import Any

import pytest
from builders.ledger_driver import LedgerDriver
from builders.proxy_calls import START, TOOLS, call_text, tool_result

from drydock.chat.template import ChatTemplate
from drydock.proxy.audit import audit
from drydock.proxy.branching import BranchReason
from drydock.proxy.segment import Segment

Messages = list[dict[str, Any]]


@pytest.fixture
def driver(template: ChatTemplate) -> LedgerDriver:
    return LedgerDriver(template)


@pytest.fixture
def history(driver: LedgerDriver) -> Messages:
    """Four tool turns: system, user, then assistant and tool four times."""
    messages = list(START)
    for command in ("a", "b", "c", "d"):
        _, message = driver.turn(messages, f"Try {command}.\n{call_text(command)}")
        messages += [message, tool_result(message, f"result of {command}")]
    return messages


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def repaired(message: dict[str, Any], **function: str) -> dict[str, Any]:
    """`message` with another first call of the same id."""
    (call, *others) = message["tool_calls"]
    return {**message, "tool_calls": [{**call, "function": {**call["function"], **function}}, *others]}


def check(driver: LedgerDriver, messages: Messages, reason: str, *, after: int | None) -> Segment:
    """The request leaves for `reason` after the turn of that index; what follows it extends the branch."""
    prompt = driver.extend(messages)
    assert prompt.reason == reason
    parent = prompt.segment.parent
    assert (None if parent is None else parent.index) == after
    message = driver.answer(prompt, "So.")
    following = driver.extend([*messages, message, user("Go on.")])
    assert following.reason is None
    assert following.segment.parent is prompt.segment
    driver.answer(following, "Done.")
    assert driver.ledger.branch_reasons == {reason: 1}
    assert audit(driver.record()).clean
    return prompt.segment


def test_a_repaired_call_is_a_branch_that_shows_the_repair_untrained(driver: LedgerDriver, history: Messages) -> None:
    history[4] = repaired(history[4], arguments='{"command": "repaired"}')
    segment = check(driver, history, "call_repaired", after=0)
    shown = driver.template.decode(segment.added_ids)
    assert "repaired" in shown
    assert '"d"' in shown, "what came later is rendered anew"
    second = driver.ledger.samples()[1]
    assert second.turn_indices == [4, 5]
    assert driver.template.encode("repaired")[0] in segment.added_ids


def test_another_tool_with_other_arguments_is_a_repair(driver: LedgerDriver, history: Messages) -> None:
    history[2] = repaired(history[2], name="other", arguments='{"line": "a"}')
    check(driver, history, "call_repaired", after=None)


def test_calls_merged_into_one_message_are_a_repair(driver: LedgerDriver, history: Messages) -> None:
    merged = {**history[2], "tool_calls": [*history[2]["tool_calls"], *history[4]["tool_calls"]]}
    check(driver, [*START, merged, history[3], *history[5:]], "call_repaired", after=None)


def test_an_observation_that_was_masked_is_a_changed_tool_message(driver: LedgerDriver, history: Messages) -> None:
    history[3] = {**history[3], "content": "<omitted>"}
    check(driver, history, "tool_changed", after=0)


def test_a_summary_in_place_of_turns_is_a_condensed_history(driver: LedgerDriver, history: Messages) -> None:
    check(driver, [*history[:4], user("Summary of b and c."), *history[8:]], "history_condensed", after=0)


def test_the_oldest_turns_left_out_is_a_condensed_history(driver: LedgerDriver, history: Messages) -> None:
    check(driver, [*START, *history[6:]], "history_condensed", after=None)


def test_a_summary_in_place_of_everything_is_a_condensed_history(driver: LedgerDriver, history: Messages) -> None:
    check(driver, [*START, user("Summary of all.")], "history_condensed", after=None)


def test_a_last_turn_left_out_is_a_dropped_turn(driver: LedgerDriver, history: Messages) -> None:
    driver.turn(history, "")
    check(driver, [*history, user("You said nothing.")], "turn_dropped", after=3)


def test_one_of_several_calls_left_out(driver: LedgerDriver) -> None:
    _, message = driver.turn(START, call_text("a") + call_text("b"))
    one = {**message, "tool_calls": message["tool_calls"][:1]}
    check(driver, [*START, one, tool_result(message, "x")], "tool_calls_missing", after=None)


def test_a_conversation_that_shows_no_recorded_turn_is_a_new_one(driver: LedgerDriver, history: Messages) -> None:
    sub_agent = [{"role": "system", "content": "You are a helper."}, user("Count.")]
    check(driver, sub_agent, "new_conversation", after=None)
    assert driver.extend([*history, user("Go on.")]).segment.branch == 0, "the first one goes on as before"


def test_the_same_task_with_other_tools(driver: LedgerDriver, history: Messages) -> None:
    assert driver.extend(START, TOOLS).reason == "tools_changed"
    assert driver.extend(history, TOOLS).reason == "tools_changed"
    assert driver.extend([user("Summarise.")], TOOLS).reason == "new_conversation"


def test_reasoning_that_the_harness_changed(driver: LedgerDriver) -> None:
    prompt = driver.extend(START)
    message = driver.answer(prompt, "So.")
    assert driver.extend([*START, {**message, "reasoning_content": "I thought."}, user("?")]).reason == (
        "reasoning_changed"
    )


def test_a_known_prefix_is_rejoined_later(driver: LedgerDriver, history: Messages) -> None:
    edited = [*history[:3], {**history[3], "content": "edited"}]
    first, message = driver.turn(edited, "So.")
    assert first.reason == "tool_changed"
    back, _ = driver.turn(history, "Back on the first branch.")
    assert (back.reason, back.branch) == (None, 0)
    again, _ = driver.turn([*edited, message, user("And again?")], "Yes.")
    assert (again.reason, again.branch) == (None, 1)
    assert [sample.turn_indices for sample in driver.ledger.samples()] == [[0, 1, 2, 3, 5], [4, 6]]


def test_two_conversations_that_take_turns_stay_two_branches(driver: LedgerDriver) -> None:
    conversations: list[Messages] = [[START[0], user(f"Task {number}")] for number in range(40)]
    for _ in range(3):
        for messages in conversations:
            _, message = driver.turn(messages, call_text("ls"))
            messages += [message, tool_result(message, "x")]
    assert driver.ledger.branch_reasons == {"new_conversation": 39}
    assert [len(sample.turn_indices) for sample in driver.ledger.samples()] == [3] * 40


def test_a_request_goes_with_the_longest_history_that_it_repeats(driver: LedgerDriver) -> None:
    """The harness shows a turn that it wrote itself; then the policy says just that in its own branch."""
    told = [*START, {"role": "assistant", "content": "Hello."}, user("More.")]
    long, answer = driver.turn(told, "So.")
    short, _ = driver.turn(START, "Hello.")
    assert short.reason == "history_shortened"
    following = driver.extend([*told, answer, user("Go on.")])
    assert following.segment.parent is long.segment


def test_another_request_while_a_turn_is_sampled_is_a_branch_of_its_own(driver: LedgerDriver) -> None:
    slow = driver.extend(START)
    fast, _ = driver.turn([*START, user("Hurry.")], "Fast.")
    assert fast.reason == "turn_dropped"
    message = driver.answer(slow, "Slow.")
    assert driver.extend([*START, message, user("Fine.")]).reason is None
    assert audit(driver.record()).clean


def test_the_docs_tell_every_reason(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs" / "branches.md").read_text(encoding="utf-8")
    for reason in BranchReason:
        assert f"`{reason.value}`" in page


def test_a_turn_that_is_shown_twice_is_not_skipped(driver: LedgerDriver, history: Messages) -> None:
    """The policy made the call once; a second showing of it, whatever it says, is the harness's."""
    again = repaired(history[-2], arguments='{"command": "forged"}')
    prompt = driver.extend([*history, again, tool_result(again, "result")])
    assert "forged" in driver.template.decode(prompt.segment.added_ids)
    driver.answer(prompt, "So.")
    assert audit(driver.record()).clean

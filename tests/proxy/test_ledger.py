from typing import Any

import pytest
from builders.ledger_driver import LedgerDriver
from builders.proxy_calls import START, TOOLS, call_text, tool_result

from drydock.chat.template import ChatTemplate


@pytest.fixture
def driver(template: ChatTemplate) -> LedgerDriver:
    return LedgerDriver(template)


def linear(driver: LedgerDriver) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    """Two tool turns; the messages up to the second result, and the tokens of all that the policy saw and said."""
    first, message = driver.turn(START, "Look.\n" + call_text("ls"))
    messages = [*START, message, tool_result(message, "a.txt")]
    second, message = driver.turn(messages, call_text("cat a.txt"))
    assert first.reason is None
    assert second.reason is None
    said = driver.ledger.samples()[0].token_ids
    return [*messages, message, tool_result(message, "hello")], tuple(said)


def test_the_next_prompt_is_the_exact_tokens_so_far_plus_what_the_harness_added(driver: LedgerDriver) -> None:
    messages, said = linear(driver)
    prompt = driver.extend(messages)
    assert tuple(prompt.ids[: len(said)]) == said
    assert driver.template.decode(prompt.ids[len(said) :]) == (
        "\n<|im_start|>user\n<tool_response>\nhello\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_sampled_ids_that_the_tokenizer_would_not_choose_are_kept(driver: LedgerDriver) -> None:
    template = driver.template
    text = '<tool_call>{"name":"terminal",  "arguments":{"command":"ls"}}</tool_call>'
    letters = [identity for letter in text for identity in template.encode(letter)]
    assert letters != template.encode(text)
    first, message = driver.turn(START, text, ids=letters)
    prompt = driver.extend([*START, message, tool_result(message, "a")])
    assert list(prompt.ids[len(first.ids) :][: len(letters)]) == letters


def test_a_turn_cut_by_the_token_limit_gets_its_end_token_from_the_harness(driver: LedgerDriver) -> None:
    first, message = driver.turn(START, "unfinished", ended=False)
    prompt = driver.extend([*START, message, {"role": "user", "content": "go on"}])
    cut = len(first.ids) + len(driver.template.encode("unfinished"))
    assert driver.template.decode(prompt.ids[cut:]).startswith("<|im_end|>\n<|im_start|>user\ngo on")
    driver.answer(prompt, "done")
    sample = driver.ledger.samples()[0]
    assert sample.token_ids[cut] == driver.template.turn_end_id
    assert sample.loss_mask[cut - 1 : cut + 1] == [1, 0]


def test_samples_have_the_mask_on_sampled_ids_only(driver: LedgerDriver) -> None:
    linear(driver)
    (sample,) = driver.ledger.samples()
    spoken = driver.template.decode([t for t, m in zip(sample.token_ids, sample.loss_mask, strict=True) if m])
    assert spoken == "Look.\n" + call_text("ls") + "<|im_end|>" + call_text("cat a.txt") + "<|im_end|>"
    assert sample.turn_indices == [0, 1]
    assert {logprob for logprob, m in zip(sample.logprobs, sample.loss_mask, strict=True) if not m} == {0.0}


@pytest.mark.parametrize(
    "rewrite",
    [
        {"arguments": '{"command":"ls"}'},
        {"arguments": '{"extra": null, "command": "\\u006cs"}'},
        {"arguments": '{"command": "cd", "command": "ls"}'},
        {"name": "renamed"},
        {"name": "renamed", "arguments": '{ "command" : "ls" }'},
    ],
)
def test_a_call_written_anew_is_recognised_by_its_id(driver: LedgerDriver, rewrite: dict[str, str]) -> None:
    messages, _ = linear(driver)
    messages[2]["tool_calls"][0]["function"] |= rewrite
    assert driver.extend(messages).reason is None


@pytest.mark.parametrize("content", [None, "", " \n", "Look.", " Look.\n"])
def test_blank_or_trimmed_content_of_a_turn_with_calls_extends(driver: LedgerDriver, content: str | None) -> None:
    messages, _ = linear(driver)
    messages[2]["content"] = content
    assert driver.extend(messages).reason is None
    del messages[2]["content"]
    assert driver.extend(messages).repeat


def test_one_turn_replayed_as_two_messages_extends(driver: LedgerDriver) -> None:
    first, message = driver.turn(START, "Both.\n" + call_text("a") + "\n" + call_text("b"))
    one, two = message["tool_calls"]
    split = [
        *START,
        {"role": "assistant", "content": "Both.", "tool_calls": [one]},
        tool_result(message, "error", 0),
        {"role": "assistant", "tool_calls": [two]},
        tool_result(message, "ok", 1),
    ]
    second, answer = driver.turn(split, call_text("c"))
    assert second.reason is None
    assert second.branch == first.branch
    assert driver.template.decode(second.ids).endswith(
        call_text("b") + "<|im_end|>\n<|im_start|>user\n<tool_response>\nerror\n</tool_response>\n"
        "<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    third = driver.extend([*split, answer, tool_result(answer, "end")])
    assert third.reason is None
    assert not driver.ledger.branch_reasons


def test_a_repeated_request_finds_its_segment_answered_or_not(driver: LedgerDriver) -> None:
    prompt = driver.extend(START)
    assert driver.extend(START).segment is prompt.segment
    message = driver.answer(prompt, call_text("ls"))
    again = driver.extend(START)
    assert again.repeat
    assert again.segment is prompt.segment
    assert not driver.extend([*START, message, tool_result(message, "a")]).repeat


def changed(messages: list[dict[str, Any]], place: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**message, **fields} if at == place else message for at, message in enumerate(messages)]


@pytest.mark.parametrize(
    ("place", "fields", "reason", "shared_turns"),
    [
        (0, {"content": "Other system."}, "system_changed", 0),
        (1, {"content": "Other task."}, "user_changed", 0),
        (1, {"role": "system"}, "history_rewritten", 0),
        (2, {"content": "Other words."}, "assistant_changed", 0),
        (3, {"content": "b.txt"}, "tool_changed", 1),
        (4, {"tool_calls": None, "content": "No call."}, "assistant_changed", 1),
    ],
)
def test_a_changed_message_starts_a_branch_where_it_stands(
    driver: LedgerDriver, place: int, fields: dict[str, Any], reason: str, shared_turns: int
) -> None:
    messages, said = linear(driver)
    prompt = driver.extend(changed(messages, place, **fields))
    assert (prompt.reason, prompt.branch) == (reason, 1)
    assert not driver.ledger.branch_reasons, "counted when recorded, not before"
    driver.answer(prompt, "end")
    assert driver.ledger.branch_reasons == {reason: 1}
    first, second = driver.ledger.samples()
    assert tuple(first.token_ids) == said
    assert len(prompt.segment.path) == 1 + shared_turns
    assert (first.turn_indices, second.turn_indices) == ([0, 1], [2]), "a shared turn is trained once"
    assert sum(second.loss_mask) == len(driver.template.encode("end")) + 1
    text = driver.template.decode(prompt.ids)
    for message in changed(messages, place, **fields):
        assert (message["content"] or "") in text


def test_a_changed_text_turn_starts_a_branch_and_a_trimmed_one_does_not(driver: LedgerDriver) -> None:
    _, message = driver.turn(START, " Hello there. ")
    more = {"role": "user", "content": "and?"}
    assert driver.extend([*START, {**message, "content": "Hello there."}, more]).reason is None
    assert driver.extend([*START, {**message, "content": "Hello."}, more]).reason == "assistant_changed"


def test_other_reasons(driver: LedgerDriver) -> None:
    _, message = driver.turn(START, call_text("a") + call_text("b"))
    one = {**message, "tool_calls": message["tool_calls"][:1]}
    assert driver.extend([*START, one, tool_result(message, "x")]).reason == "tool_calls_missing"
    assert driver.extend(START[:1]).reason == "history_shortened"
    assert driver.extend([*START, {"role": "user", "content": "more"}]).reason == "turn_dropped"
    assert driver.extend(START, TOOLS).reason == "tools_changed"


def test_two_requests_at_once_get_a_branch_each_and_an_abandoned_one_leaves_nothing(driver: LedgerDriver) -> None:
    _, message = driver.turn(START, call_text("ls"))
    left = driver.extend([*START, message, tool_result(message, "left")])
    right = driver.extend([*START, message, tool_result(message, "right")])
    assert (left.reason, right.reason) == (None, "tool_changed")
    driver.answer(right, "right end")
    driver.ledger.abandon(left)
    (sample,) = driver.ledger.samples()
    assert sample.turn_indices == [0, 1]
    again = driver.extend([*START, message, tool_result(message, "left")])
    assert not again.repeat
    assert again.reason == "tool_changed"


def test_assistant_messages_that_were_never_sampled_are_part_of_the_prompt(driver: LedgerDriver) -> None:
    shown = [*START, {"role": "assistant", "content": "example"}, {"role": "user", "content": "now you"}]
    first, message = driver.turn(shown, call_text("ls"))
    assert first.reason is None
    assert "example<|im_end|>" in driver.template.decode(first.ids)
    assert driver.extend([*shown, message, tool_result(message, "a")]).reason is None


def test_a_long_history_is_extended_without_recursion_or_rerendering(driver: LedgerDriver) -> None:
    messages = list(START)
    for number in range(250):
        prompt, message = driver.turn(messages, call_text(f"echo {number}"))
        assert prompt.reason is None
        assert len(prompt.segment.given) <= 2
        messages += [message, tool_result(message, str(number))]
    assert len(driver.ledger.samples()) == 1

import pytest
from builders.ledger_driver import LedgerDriver
from builders.proxy_calls import START, call_text, tool_result

from drydock.chat.template import ChatTemplate
from drydock.proxy.audit import TokenAudit, audit
from drydock.proxy.record import LedgerSample, RolloutRecord, TurnRecord
from drydock.proxy.token_hash import TokenHash


@pytest.fixture
def record(template: ChatTemplate) -> RolloutRecord:
    """A branched rollout of four turns."""
    driver = LedgerDriver(template)
    messages = list(START)
    for text in ("one", "two", "three"):
        _, message = driver.turn(messages, call_text(text))
        messages += [message, tool_result(message, text)]
    driver.turn([*messages[:3], {**messages[3], "content": "changed"}], "four")
    return RolloutRecord.model_validate_json(driver.record().model_dump_json())


def span(sample: LedgerSample, turn: TurnRecord) -> slice:
    return slice(turn.prompt_length, turn.prompt_length + len(turn.sampled_ids))


def test_a_branched_record_is_clean_and_each_sampled_token_is_trained_once(record: RolloutRecord) -> None:
    assert len(record.samples) == 2
    result = audit(record)
    assert result.clean
    assert result.trained_tokens == sum(len(turn.sampled_ids) for turn in record.turns)


def test_other_ids_in_a_sampled_span_are_retokenized(record: RolloutRecord) -> None:
    turn = record.turns[1]
    record.samples[0].token_ids[turn.prompt_length] += 1
    # the later turn of the same branch now stands under another prompt than it was sampled under
    expected = len(turn.sampled_ids) + len(record.turns[2].sampled_ids)
    assert audit(record).retokenized_tokens == expected
    assert audit(record).unrecorded_tokens == 0


def test_a_changed_prompt_token_taints_every_turn_after_it(record: RolloutRecord) -> None:
    record.samples[1].token_ids[0] += 1
    assert audit(record).retokenized_tokens == len(record.turns[3].sampled_ids)


def test_a_mask_beyond_the_sampled_ids_is_found(record: RolloutRecord) -> None:
    turn = record.turns[2]
    record.samples[0].loss_mask[turn.prompt_length - 1] = 1
    assert audit(record).unrecorded_tokens == len(turn.sampled_ids) + 1


def test_a_turn_trained_in_two_samples_is_found(record: RolloutRecord) -> None:
    shared = span(record.samples[1], record.turns[0])
    record.samples[1].loss_mask[shared] = [1] * len(record.turns[0].sampled_ids)
    assert audit(record).retokenized_tokens == len(record.turns[0].sampled_ids)


def test_a_log_prob_that_was_not_recorded_is_found(record: RolloutRecord) -> None:
    record.samples[0].logprobs[record.turns[1].prompt_length] -= 0.25
    result = audit(record)
    assert result.wrong_logprobs == 1
    assert not result.clean


def test_a_branch_without_a_reason_is_found(record: RolloutRecord) -> None:
    assert record.turns[3].reason == "tool_changed"
    record.turns[3].reason = None
    result = audit(record)
    assert result.unexplained_branches == 1
    assert not result.clean


def test_without_turns_nothing_is_recorded(record: RolloutRecord) -> None:
    record.turns = []
    result = audit(record)
    assert result.unrecorded_tokens == result.trained_tokens > 0
    assert (result + TokenAudit(trained_tokens=1)).trained_tokens == result.trained_tokens + 1


def test_token_hash_is_sha256_of_little_endian_words() -> None:
    # printf '\x01\0\0\0\x2c\x01\0\0' | sha256sum
    digest = "3d39c1cd1d33bc4e88dde69aae6ba839c75c2483a9003b9877e2182f951c258e"
    assert TokenHash().extended([1]).extended([300]).hex == TokenHash().extended([1, 300]).hex == digest

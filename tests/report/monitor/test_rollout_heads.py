"""The beginning of a trajectory file says the same as the whole file."""

from pathlib import Path

import pytest
from builders.trajectories import sample, trajectory

from drydock.report.monitor.rollout_heads import RolloutHead, rollout_heads
from drydock.rollout.outcome import Outcome

TRAPS = ['","record":{', '\\","record":{"', "é\n\x1b[2J", "x" * 100_000]


@pytest.mark.parametrize("error", TRAPS, ids=["record", "backslash", "control", "longer than is read"])
def test_a_message_is_never_taken_for_the_record(tmp_path: Path, error: str) -> None:
    one = trajectory("a/b", None, [sample([0, 1] * 50_000)], outcome=Outcome.HARNESS_ERROR, error=error)
    head = RolloutHead.read(one.write(tmp_path))
    assert head is not None
    assert (head.task, head.outcome, head.error, head.reward) == ("a/b", "harness_error", error, None)


def test_rollouts_are_listed_by_task_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    for one in (trajectory("b", 0.5, repetition=10), trajectory("b", 1.0, repetition=2), trajectory("a", 0.0)):
        one.model_copy(update={"advantage": 0.25, "turns": 3}).write(tmp_path)
    (tmp_path / "half.json").write_text('{"task": "a", "rep')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / ".b_1.json.12.tmp").write_text("{}")
    heads = rollout_heads(tmp_path)
    assert [(head.task, head.repetition, head.reward) for head in heads] == [
        ("a", 0, 0.0),
        ("b", 2, 1.0),
        ("b", 10, 0.5),
    ]
    assert {(head.advantage, head.turns, head.split) for head in heads} == {(0.25, 3, "train")}
    assert rollout_heads(tmp_path / "missing") == []

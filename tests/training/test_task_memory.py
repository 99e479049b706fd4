"""Strikes against tasks: what counts as one, what clears them, and what is written down."""

import json
from collections.abc import Sequence
from pathlib import Path

from builders.trajectories import trajectory

from drydock.errors import Blame
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.task_memory import TaskMemory
from drydock.training.task_set import Task

VERIFIER = (Outcome.VERIFIER_ERROR, Blame.TASK)
SANDBOX = (Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE)
TURNS = (Outcome.TURNS_EXHAUSTED, Blame.MODEL)
LATE = (Outcome.AGENT_TIMEOUT, Blame.MODEL)
GATED = (Outcome.SANDBOX_ERROR, Blame.USER)


def group(task: str, *ends: tuple[Outcome, Blame] | float) -> list[Trajectory]:
    made = []
    for number, end in enumerate(ends):
        if isinstance(end, float):
            made.append(trajectory(task, end, repetition=number))
        else:
            one = trajectory(task, None, repetition=number, outcome=end[0], error="what was said")
            made.append(one.model_copy(update={"blame": end[1]}))
    return made


def dropped_after(limit: int, *rounds: Sequence[Sequence[Trajectory]]) -> list[list[str]]:
    memory = TaskMemory(limit)
    return [[gone.task for gone in memory.note(groups)] for groups in rounds]


def test_a_task_is_dropped_with_its_last_strike_and_only_once() -> None:
    broken = [group("a", VERIFIER, VERIFIER)]
    assert dropped_after(2, broken, broken, broken) == [[], ["a"], []]
    assert dropped_after(0, broken, broken, broken) == [[], [], []]


def test_a_graded_rollout_clears_the_strikes() -> None:
    broken, works = [group("a", VERIFIER, VERIFIER)], [group("a", VERIFIER, 0.0)]
    assert dropped_after(2, broken, works, broken, works, broken) == [[], [], [], [], []]


def test_what_the_policy_or_the_user_did_is_not_held_against_a_task() -> None:
    for end in (TURNS, LATE, GATED):
        rounds = [group("a", VERIFIER, end), group("b", 1.0)]
        assert dropped_after(1, rounds) == [[]]


def test_a_machine_that_fails_everything_is_not_the_tasks_fault() -> None:
    assert dropped_after(1, [group("a", SANDBOX, SANDBOX), group("b", SANDBOX, SANDBOX)]) == [[]]


def test_a_machine_that_fails_one_task_only_is() -> None:
    assert dropped_after(1, [group("a", SANDBOX, SANDBOX), group("b", 0.0, SANDBOX)]) == [["a"]]
    memory = TaskMemory(1)
    assert [gone.task for gone in memory.note([group("a", SANDBOX)], others_graded=True)] == ["a"]


def test_dropped_tasks_are_written_with_the_cause_and_known_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "dropped_tasks.jsonl"
    TaskMemory(1, file).note([group("a", VERIFIER, VERIFIER)])
    [line] = file.read_text().splitlines()
    assert json.loads(line) == {
        "task": "a",
        "path": "tasks/a",
        "step": 1,
        "strikes": 1,
        "cause": "verifier_error (2 of 2, blame: task), e.g. what was said",
    }
    again = TaskMemory(1, file)
    assert again.still_used([Task("a", Path("a")), Task("b", Path("b"))]) == [Task("b", Path("b"))]

"""The supply of tasks beyond those that a step was dealt."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from drydock.training.spare_tasks import SpareTasks
from drydock.training.task_set import Task

TASKS = [Task(name, Path(name)) for name in "abcdef"]
BY_NAME = {task.name: task for task in TASKS}


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")))),
    st.integers(0, 99),
)
def test_what_is_taken_is_allowed_distinct_and_all_that_there_is(
    draws: list[tuple[int, set[str], set[str]]], seed: int
) -> None:
    spare, twin = SpareTasks(TASKS, seed), SpareTasks(TASKS, seed)
    for count, without, back in draws:
        taken = spare.take(count, without)
        names = [task.name for task in taken]
        assert len(set(names)) == len(names) == min(count, len(TASKS) - len(without))
        assert not set(names) & without
        assert twin.take(count, without) == taken
        for one in (spare, twin):
            one.give_back([BY_NAME[name] for name in sorted(back)])


def test_a_pass_holds_each_task_once() -> None:
    spare = SpareTasks(TASKS, 3)
    passes = [[spare.take(1, ())[0].name for _ in TASKS] for _ in range(2)]
    assert [sorted(names) for names in passes] == [list("abcdef")] * 2
    assert passes[0] != passes[1]


def test_what_was_cut_off_comes_first() -> None:
    spare = SpareTasks(TASKS, 3)
    spare.take(2, ())
    spare.give_back([BY_NAME["e"], BY_NAME["a"]])
    assert [task.name for task in spare.take(2, ())] == ["e", "a"]


def test_skipped_tasks_keep_their_place() -> None:
    spare, twin = SpareTasks(TASKS, 5), SpareTasks(TASKS, 5)
    order = [task.name for task in twin.take(6, ())]
    assert [task.name for task in spare.take(1, order[:1])] == [order[1]]
    assert [task.name for task in spare.take(2, ())] == [order[0], order[2]]

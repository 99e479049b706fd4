"""Second chances: a group that broke, a step that broke, a task that is broken."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from builders.trajectories import trajectory

from drydock.errors import Blame
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.causes import dominant_cause
from drydock.training.config import RunConfig
from drydock.training.config_file import load_run_config
from drydock.training.group_rollouts import Collected, NoGradedRollout, collect_rollouts
from drydock.training.task_memory import TaskMemory
from drydock.training.task_set import Task

A, B = Task("a", Path("a")), Task("b", Path("b"))

GRADED = (Outcome.GRADED, None)
SANDBOX = (Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE)
VERIFIER = (Outcome.VERIFIER_ERROR, Blame.TASK)
TURNS = (Outcome.TURNS_EXHAUSTED, Blame.MODEL)


def config(*overrides: str) -> RunConfig:
    return load_run_config(None, ["data.train=t", "trainer.policy.model.path=some/model", *overrides])


class Rollouts:
    """Groups of two that end as `end_of(task, attempt)` says; `calls` holds which tasks were run."""

    def __init__(self, end_of: Callable[[str, int], tuple[Outcome, Blame | None]]) -> None:
        self.end_of = end_of
        self.calls: list[str] = []

    async def __call__(self, tasks: Sequence[Task], step: int, attempt: int) -> list[Trajectory]:
        self.calls.append("".join(task.name for task in tasks))
        made = []
        for task in tasks:
            outcome, blame = self.end_of(task.name, attempt)
            reward = float(attempt) if outcome is Outcome.GRADED else None
            for number in range(2):
                one = trajectory(task.name, reward, repetition=number, outcome=outcome, error=f"{outcome} happened")
                made.append(one.model_copy(update={"blame": blame}))
        return made


async def collect(rollouts: Rollouts, *overrides: str, memory: TaskMemory | None = None) -> Collected:
    return await collect_rollouts([A, B], 4, config(*overrides), rollouts, memory or TaskMemory(2))


async def test_a_group_that_broke_is_run_again_alone() -> None:
    rollouts = Rollouts(lambda task, attempt: SANDBOX if (task, attempt) == ("b", 0) else GRADED)
    collected = await collect(rollouts)
    assert rollouts.calls == ["ab", "b"]
    assert [(one.task, one.reward) for one in collected.trajectories] == [("a", 0.0)] * 2 + [("b", 1.0)] * 2
    assert (collected.groups_retried, collected.dropped) == (1, [])


async def test_a_group_is_run_again_as_often_as_is_set() -> None:
    rollouts = Rollouts(lambda task, _: SANDBOX if task == "b" else GRADED)
    collected = await collect(rollouts, "trainer.group_retries=0")
    assert rollouts.calls == ["ab"]
    assert [one.reward for one in collected.trajectories] == [0.0, 0.0, None, None]


async def test_what_the_policy_did_is_not_run_again_while_others_were_graded() -> None:
    rollouts = Rollouts(lambda task, _: TURNS if task == "b" else GRADED)
    await collect(rollouts)
    assert rollouts.calls == ["ab"]


async def test_a_broken_task_is_dropped_and_the_step_goes_on_without_it() -> None:
    rollouts = Rollouts(lambda task, _: VERIFIER if task == "b" else GRADED)
    memory = TaskMemory(2)
    collected = await collect(rollouts, memory=memory)
    assert rollouts.calls == ["ab", "b"]
    assert [(one.task, one.masked) for one in collected.trajectories] == [("a", False)] * 2 + [("b", True)] * 2
    [gone] = collected.dropped
    assert (gone.task, gone.step, gone.strikes) == ("b", 1, 2)
    assert "verifier_error happened" in gone.cause
    assert memory.still_used([A, B]) == [A]


async def test_a_step_without_a_graded_rollout_is_tried_again() -> None:
    rollouts = Rollouts(lambda _, attempt: SANDBOX if attempt < 2 else GRADED)
    collected = await collect(rollouts)
    assert rollouts.calls == ["ab", "ab", "ab"]
    assert [one.reward for one in collected.trajectories] == [2.0] * 4
    assert collected.groups_retried == 4


async def test_the_run_stops_with_the_dominant_cause_when_the_retries_are_used_up() -> None:
    rollouts = Rollouts(lambda task, _: SANDBOX if task == "a" else TURNS)
    with pytest.raises(NoGradedRollout) as caught:
        await collect(rollouts, "trainer.step_retries=2")
    assert len(rollouts.calls) == 3
    for part in ("step 4", "3 attempts", "sandbox_error (2 of 4, blame: infrastructure)", "sandbox_error happened"):
        assert part in str(caught.value)


async def test_the_run_stops_at_once_when_every_task_was_dropped() -> None:
    rollouts = Rollouts(lambda *_: VERIFIER)
    with pytest.raises(NoGradedRollout, match="dropped as broken: a, b"):
        await collect(rollouts, "trainer.step_retries=9")
    assert rollouts.calls == ["ab", "ab"]


def test_a_cause_without_a_message_is_its_outcome() -> None:
    cut = [trajectory(reward=None, outcome=Outcome.TURNS_EXHAUSTED)] * 2
    assert dominant_cause(cut) == "turns_exhausted (2 of 2)"

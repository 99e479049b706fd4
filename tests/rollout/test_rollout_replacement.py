"""Rollouts that broke and are run again: which, how often, and what is left of the first."""

import pytest
from builders.policy import SOLVE_HELLO, tool_call
from builders.tasks import write_task
from builders.trajectories import trajectory
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import Blame
from drydock.rollout import Outcome, Replacements, RolloutPool, Trajectory
from drydock.rollout.trajectory_files import read_trajectory

FLAKY = "builders.flaky_environment:FlakyEnvironment"


def broken(blame: Blame, *, task: str = "t", attempt: int = 0, outcome: Outcome = Outcome.SANDBOX_ERROR) -> Trajectory:
    return trajectory(task, None, outcome=outcome).model_copy(update={"blame": blame, "attempt": attempt})


@pytest.mark.parametrize(
    ("blame", "again"),
    [
        (Blame.INFRASTRUCTURE, True),
        (Blame.HARNESS, True),
        (Blame.TASK, False),
        (Blame.MODEL, False),
        (Blame.USER, False),
    ],
)
def test_only_what_may_pass_is_replaced(blame: Blame, again: bool) -> None:
    fresh = Replacements(budget=1)
    one = broken(blame)
    assert (fresh.take(one), one.replaced, fresh.budget) == (again, again, 1 - again)


def test_a_task_that_fails_now_and_then_is_replaced_once_it_was_graded() -> None:
    fresh = Replacements(budget=5)
    flaky = broken(Blame.TASK, outcome=Outcome.VERIFIER_ERROR)
    assert not fresh.take(flaky)
    assert not fresh.take(trajectory("t", 1.0))
    assert fresh.take(flaky)
    assert not fresh.take(broken(Blame.TASK, task="another"))


@given(st.lists(st.tuples(st.sampled_from(Blame), st.integers(0, 4))), st.integers(0, 5), st.integers(0, 3))
def test_the_budget_is_never_overdrawn(ends: list[tuple[Blame, int]], budget: int, per_rollout: int) -> None:
    fresh = Replacements(budget, per_rollout)
    taken = [attempt for blame, attempt in ends if fresh.take(broken(blame, attempt=attempt))]
    assert len(taken) == len(fresh.replaced) == budget - fresh.budget <= budget
    assert all(attempt < per_rollout for attempt in taken)


def test_pauses_grow_and_are_bounded() -> None:
    pauses = [Replacements(budget=0).pause_s(attempt) for attempt in range(12)]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 30.0


async def test_a_sandbox_that_fails_for_a_moment_costs_no_rollout(tmp_path, serve, settings, spec_for):
    kwargs = {**settings.environment_kwargs, "fail_starts": 3, "counter": str(tmp_path / "starts")}
    settings = settings.model_copy(update={"environment": FLAKY, "environment_kwargs": kwargs})
    task = write_task(tmp_path / "hello")
    specs = [spec_for(task, repetition) for repetition in range(3)]
    done: list[Trajectory] = []
    async with serve(SOLVE_HELLO) as proxy:
        fresh = Replacements(budget=10)
        pool = RolloutPool(settings, proxy, concurrency=3)
        ended = await pool.run(specs, out_dir=tmp_path / "out", on_done=done.append, replacements=fresh)
    assert [(one.outcome, one.reward, one.replaced) for one in ended] == [(Outcome.GRADED, 1.0, False)] * 3
    assert sorted(one.repetition for one in done) == [0, 1, 2]
    assert (len(fresh.replaced), fresh.budget) == (3, 7)
    assert {one.blame for one in fresh.replaced} == {Blame.INFRASTRUCTURE}
    assert len({one.rollout_id for one in (*ended, *fresh.replaced)}) == 6
    kept = {file.name: read_trajectory(file) for file in (tmp_path / "out").iterdir()}
    assert sorted(name for name in kept if name.endswith(".json")) == [f"hello_{n}.json" for n in range(3)]
    errors = [one for name, one in kept.items() if name.endswith(".error")]
    assert len(errors) == 3
    assert all(one.replaced and "out of sandboxes" in (one.error or "") for one in errors)


async def test_without_a_budget_left_the_last_failure_stands(tmp_path, serve, settings, spec_for):
    kwargs = {**settings.environment_kwargs, "fail_starts": 99, "counter": str(tmp_path / "starts")}
    settings = settings.model_copy(update={"environment": FLAKY, "environment_kwargs": kwargs})
    async with serve(SOLVE_HELLO) as proxy:
        pool = RolloutPool(settings, proxy, concurrency=1)
        fresh = Replacements(budget=1, per_rollout=2)
        [ended] = await pool.run([spec_for(write_task(tmp_path / "hello"))], replacements=fresh)
    assert (ended.outcome, ended.attempt, ended.replaced) == (Outcome.SANDBOX_ERROR, 1, False)
    assert len((tmp_path / "starts").read_text()) == 2


async def test_what_the_policy_did_is_never_sampled_again(tmp_path, serve, settings, spec_for):
    async with serve([tool_call("terminal", command="true")]) as proxy:
        pool = RolloutPool(settings, proxy, concurrency=1)
        fresh = Replacements(budget=5)
        [ended] = await pool.run([spec_for(write_task(tmp_path / "hello"))], replacements=fresh)
    assert (ended.outcome, ended.attempt, fresh.budget) == (Outcome.TURNS_EXHAUSTED, 0, 5)


def test_ids_of_fresh_rollouts_are_their_own_and_do_not_grow(tmp_path, spec_for):
    spec = spec_for(tmp_path / "hello")
    first, second = spec.fresh(), spec.fresh().fresh()
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.rollout_id, second.rollout_id) == (f"{spec.rollout_id}-again1", f"{spec.rollout_id}-again2")

"""Tasks as trials see them: limits, and preparation that notices changes."""

import os
from pathlib import Path

import pytest
from builders.policy import tool_call
from builders.tasks import write_task

from drydock.errors import TaskError
from drydock.rollout import Outcome, RolloutDeadlines, run_rollout
from drydock.rollout.prepared_task import prepared_task
from drydock.rollout.task_limits import task_limits


@pytest.mark.parametrize(("own", "limit"), [(None, 100.0), (30.0, 30.0), (5000.0, 100.0)])
def test_the_shorter_agent_limit_holds_and_there_always_is_one(tmp_path: Path, own: float | None, limit: float):
    task = write_task(tmp_path / "t", agent_timeout_s=own)
    assert task_limits(task).agent_limit_s(RolloutDeadlines(agent_s=100.0)) == limit


@pytest.mark.parametrize(("ours", "factor"), [(60.0, 0.5), (120.0, 1.0), (600.0, 1.0)])
def test_the_build_limit_is_scaled_down_to_ours(tmp_path: Path, ours: float, factor: float):
    task = write_task(tmp_path / "t")
    assert task_limits(task).build_multiplier(RolloutDeadlines(sandbox_start_s=ours)) == factor


def test_an_unreadable_task_file_is_named(tmp_path: Path):
    task = write_task(tmp_path / "t")
    (task / "task.toml").write_text("[agent\n")
    with pytest.raises(TaskError, match=r"task\.toml"):
        task_limits(task)


def test_a_task_is_prepared_once_as_long_as_its_files_stay(tmp_path: Path):
    task = write_task(tmp_path / "t")
    first = prepared_task(task)
    assert prepared_task(task) is first
    file = task / "environment" / "data.txt"
    file.write_text("x")
    second = prepared_task(task)
    assert second is not first
    assert second.checksum != first.checksum
    os.utime(file, ns=(1, 1))
    assert prepared_task(task) is not second


def test_trials_of_a_task_do_not_share_what_environments_may_change(tmp_path: Path):
    task = prepared_task(write_task(tmp_path / "t"))
    one, other = task.for_one_trial(), task.for_one_trial()
    one.config.environment.memory_mb = 7
    assert other.config.environment.memory_mb != 7
    assert task.config.environment.memory_mb != 7


async def test_a_changed_verifier_counts_from_the_next_rollout_on(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello", test="echo 0.25 > /logs/verifier/reward.txt")
    async with serve() as proxy:
        first = await run_rollout(spec_for(task, 0), settings, proxy)
        (task / "tests" / "test.sh").write_text("#!/bin/bash\necho 0.75 > /logs/verifier/reward.txt\n")
        second = await run_rollout(spec_for(task, 1), settings, proxy)
    assert (first.reward, second.reward) == (0.25, 0.75)


async def test_files_excluded_by_the_task_are_not_given_to_the_verifier(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "hello", test="test -e /tests/secret; echo $? > /logs/verifier/reward.txt")
    (task / "tests" / "secret").write_text("x")
    (task / "tests" / ".harborignore").write_text("secret\n")
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(task), settings, proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)


async def test_a_task_in_steps_runs_the_agent_in_each(tmp_path, serve, settings, spec_for):
    task = write_task(tmp_path / "steps")
    toml = task / "task.toml"
    toml.write_text(f'multi_step_reward_strategy = "mean"\n{toml.read_text()}')
    for name, word in (("one", "hello"), ("two", "other")):
        step = task / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(f"Write hello, part {name}.\n")
        (step / "tests" / "test.sh").write_text(
            f'#!/bin/bash\n[ "$(cat /app/answer.txt)" = {word} ]\necho $((1 - $?)) > /logs/verifier/reward.txt\n'
        )
        toml.write_text(toml.read_text() + f'\n[[steps]]\nname = "{name}"\n')
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(task), settings, proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (Outcome.GRADED, 0.5, 8)


def in_steps(task: Path, *tables: str) -> Path:
    """Make `task` one in steps named one, two, …, each with what `tables` says of it."""
    toml = task / "task.toml"
    for name, table in zip(("one", "two"), tables, strict=False):
        step = task / "steps" / name
        (step / "tests").mkdir(parents=True)
        (step / "instruction.md").write_text(f"Write hello, part {name}.\n")
        (step / "tests" / "test.sh").write_text("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n")
        toml.write_text(f'{toml.read_text()}\n[[steps]]\nname = "{name}"\n{table}\n')
    return task


@pytest.mark.parametrize(
    ("task_s", "table", "run_s", "limit"),
    [
        (60.0, "[steps.agent]\ntimeout_sec = 1.0", 30.0, 1.0),
        (1.0, "", 30.0, 1.0),
        (None, "", 1.0, 1.0),
        (None, "[steps.agent]\ntimeout_sec = 60.0", 1.0, 1.0),
    ],
)
async def test_the_shortest_of_step_task_and_run_limits_the_agent_in_a_step(
    tmp_path, serve, settings, spec_for, task_s, table, run_s, limit
):
    task = in_steps(write_task(tmp_path / "steps", agent_timeout_s=task_s), table)
    limits = RolloutDeadlines(**{**settings.deadlines.model_dump(), "agent_s": run_s})
    async with serve([tool_call("terminal", command="sleep 600")]) as proxy:
        trajectory = await run_rollout(spec_for(task), settings.model_copy(update={"deadlines": limits}), proxy)
    assert trajectory.outcome is Outcome.AGENT_TIMEOUT
    assert limit <= trajectory.timings["agent_s"] < limit + 3


async def test_a_task_in_steps_has_the_time_of_all_its_steps(tmp_path, serve, settings, spec_for):
    limits = RolloutDeadlines(sandbox_start_s=1, agent_setup_s=0.1, agent_s=2, verifier_s=1, cleanup_s=0.1)
    assert (limits.overall_for(1), limits.overall_for(2)) == pytest.approx((4.2, 7.2))
    replies = [tool_call("terminal", command="sleep 1.5"), tool_call("finish")]
    task = in_steps(write_task(tmp_path / "steps"), "", "")
    async with serve(replies) as proxy:
        trajectory = await run_rollout(spec_for(task), settings.model_copy(update={"deadlines": limits}), proxy)
    assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, 1.0)
    assert trajectory.timings["agent_s"] > 3


@pytest.mark.parametrize(
    ("replies", "limits", "outcome", "turns"),
    [
        ([tool_call("terminal", command="true")], {}, Outcome.TURNS_EXHAUSTED, 8),
        ([tool_call("terminal", command="sleep 600")], {"agent_s": 1.0}, Outcome.AGENT_TIMEOUT, 1),
    ],
)
async def test_a_step_without_a_reward_is_the_last_and_says_why(
    tmp_path, serve, settings, spec_for, replies, limits, outcome, turns
):
    task = in_steps(write_task(tmp_path / "steps"), "", "")
    deadlines = RolloutDeadlines(**{**settings.deadlines.model_dump(), **limits})

    def reply(_ids: list[int], text: str) -> str:
        return replies[0] if "part one" in text else tool_call("finish")

    async with serve(reply) as proxy:
        trajectory = await run_rollout(spec_for(task), settings.model_copy(update={"deadlines": deadlines}), proxy)
    assert (trajectory.outcome, trajectory.reward, trajectory.turns) == (outcome, None, turns)


async def test_a_task_behind_a_symbolic_link_runs(tmp_path, serve, settings, spec_for):
    write_task(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with serve() as proxy:
        trajectory = await run_rollout(spec_for(tmp_path / "link"), settings, proxy)
    assert (trajectory.task, trajectory.outcome, trajectory.reward) == ("link", Outcome.GRADED, 1.0)

"""Tasks with one fault each, checked for real: what is found, whose it is, and what to do about it."""

from pathlib import Path

import pytest
from builders.tasks import write_task

from drydock.errors import Blame, ConfigError, SandboxUnavailable
from drydock.rollout.settings import RolloutDeadlines
from drydock.rollout.task_check import TaskCheck, check_tasks


async def checked(folder: Path, settings, runs: int = 2) -> TaskCheck:
    (result,) = await check_tasks([folder], settings, runs=runs, concurrency=2)
    return result


async def the_fault(folder: Path, settings):
    result = await checked(folder, settings)
    assert not result.ok
    (fault,) = result.faults
    return fault


async def test_a_fit_task(tmp_path, settings):
    result = await checked(write_task(tmp_path / "good"), settings, runs=3)
    assert result.ok
    assert (result.solution, result.nothing) == ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert set(result.timings) == {"build_s", "sandbox_s", "solve_s", "verifier_s"}
    assert all(0 < seconds < 30 for seconds in result.timings.values())


async def test_a_solution_that_does_not_solve_is_shown_with_what_it_printed(tmp_path, settings):
    task = write_task(tmp_path / "t", solution="echo cannot find it >&2\nexit 3\n")
    fault = await the_fault(task, settings)
    assert fault.blame is Blame.TASK
    assert "the solution earns 0, not 1" in fault.what
    assert "solution/solve.sh (exit code 3) printed:\ncannot find it" in fault.what
    assert "full_reward" in fault.remedy


async def test_a_task_that_nothing_solves(tmp_path, settings):
    task = write_task(tmp_path / "t", test="echo 1 > /logs/verifier/reward.txt\n")
    fault = await the_fault(task, settings)
    assert "doing nothing earns 1, not 0" in fault.what
    assert "baseline_reward" in fault.remedy


async def test_what_the_task_says_of_its_rewards_counts(tmp_path, settings):
    test = "if [ -e /app/answer.txt ]; then echo 5; else echo 2; fi > /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "t", test=test, toml="[metadata]\nfull_reward = 5\nbaseline_reward = 2.0\n")
    assert (await checked(task, settings)).ok


async def test_a_task_that_teaches_nothing(tmp_path, settings):
    test = "echo 1 > /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "t", test=test, toml="[metadata]\nbaseline_reward = 1\n")
    assert "there is nothing to learn" in (await the_fault(task, settings)).what


async def test_a_verifier_that_grades_the_same_thing_differently(tmp_path, settings):
    task = write_task(tmp_path / "t", test="echo 0.$(date +%N) > /logs/verifier/reward.txt\n")
    result = await checked(task, settings)
    assert ["the verifier is not stable" in fault.what for fault in result.faults] == [True, True]
    assert all("deterministic" in fault.remedy for fault in result.faults)


async def test_a_verifier_whose_output_ends_up_in_the_reward(tmp_path, settings):
    test = "if diff /app/answer.txt /dev/null; then echo 0; else echo 1; fi > /logs/verifier/reward.txt\n"
    result = await checked(write_task(tmp_path / "t", test=test), settings)
    assert any("carrying out the solution: the verifier failed" in fault.what for fault in result.faults)
    assert all("and nothing else" in fault.remedy for fault in result.faults if "failed" in fault.what)


async def test_a_verifier_without_a_reward_fails_once_for_all_runs(tmp_path, settings):
    task = write_task(tmp_path / "t", test="echo looking for it\nexit 1\n")
    fault = await the_fault(task, settings)
    assert fault.blame is Blame.TASK
    assert "looking for it" in fault.what


async def test_a_task_without_a_solution(tmp_path, settings):
    task = write_task(tmp_path / "t")
    (task / "solution" / "solve.sh").unlink()
    result = await checked(task, settings)
    assert ["no solution/solve.sh" in fault.what for fault in result.faults] == [True]
    assert (result.nothing, result.solution) == ([0.0, 0.0], [])


async def test_a_dockerfile_that_fails_is_named_by_line(tmp_path, settings):
    task = write_task(tmp_path / "t", dockerfile="FROM debian\n\nRUN echo no such thing && false\n")
    fault = await the_fault(task, settings)
    assert fault.blame is Blame.TASK
    assert f"{task}/environment/Dockerfile:3" in fault.what
    assert "no such thing" in fault.what


async def test_a_solution_that_takes_too_long(tmp_path, settings):
    task = write_task(tmp_path / "t", solution="sleep 60\n", agent_timeout_s=1.0)
    fault = await the_fault(task, settings)
    assert "carrying out the solution" in fault.what
    assert "raise timeout_sec in [agent]" in fault.remedy


async def test_a_healthcheck_that_never_succeeds_is_the_tasks(tmp_path, settings):
    toml = '[environment.healthcheck]\ncommand = "test -e /nowhere"\ninterval_sec = 0.05\nretries = 2\n'
    fault = await the_fault(write_task(tmp_path / "t", toml=toml), settings)
    assert fault.blame is Blame.TASK
    assert "a sandbox runs no CMD" in fault.remedy


async def test_broken_files_are_found_without_a_sandbox(tmp_path, settings):
    task = write_task(tmp_path / "t")
    (task / "task.toml").write_text("[agent]\ntimeout_sec = \n")
    unusable = settings.model_copy(update={"environment": "no-such-environment"})
    fault = await the_fault(task, unusable)
    assert fault.what == f"{task}/task.toml:2: Invalid value"


async def test_results_are_in_the_order_asked_for_and_told_as_they_come(tmp_path, settings):
    slow = write_task(tmp_path / "slow", solution="sleep 1\necho hello > /app/answer.txt\n")
    quick = write_task(tmp_path / "quick")
    told: list[str] = []
    results = await check_tasks(
        [slow, quick], settings, runs=1, concurrency=2, on_done=lambda result: told.append(result.task)
    )
    assert [result.task for result in results] == ["slow", "quick"]
    assert told == ["quick", "slow"]


async def test_what_is_no_tasks_fault_is_raised(tmp_path, settings, monkeypatch):
    task = write_task(tmp_path / "t")
    with pytest.raises(ConfigError, match="no-such-environment"):
        await checked(task, settings.model_copy(update={"environment": "no-such-environment"}))
    monkeypatch.delenv("HARBOR_ALLOW_HOST_EXEC")
    with pytest.raises(SandboxUnavailable, match="HARBOR_ALLOW_HOST_EXEC=1"):
        await checked(task, settings)


async def test_a_runs_own_shorter_limit_holds_for_the_solution(tmp_path, settings):
    task = write_task(tmp_path / "t", solution="sleep 60\n")
    limits = RolloutDeadlines(**{**settings.deadlines.model_dump(), "agent_s": 1.0})
    fault = await the_fault(task, settings.model_copy(update={"deadlines": limits}))
    assert "deadlines.agent_s" in fault.remedy

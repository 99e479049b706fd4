"""What is read of a run's folder: its state, its steps, its faults; while it grows and when it is put back."""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from builders.trajectories import trajectory
from builders.watched_run import WatchedRun
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import Blame, UserError
from drydock.report.monitor.life import Life
from drydock.report.monitor.outcomes import OutcomeCount
from drydock.report.monitor.panels import head
from drydock.report.monitor.run_watch import RunWatch
from drydock.report.monitor.settings import RunSettings
from drydock.report.run_marks import STEPS
from drydock.rollout.outcome import Outcome
from drydock.training.diagnosis.finding import StepFinding
from drydock.training.run_folder import RunFolder


def watch(run: WatchedRun) -> RunWatch:
    return RunWatch(run.folder.root, RunFolder)


def bytes_read() -> int:
    """Of this process, from files, so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def run(tmp_path: Path) -> WatchedRun:
    return WatchedRun.made(tmp_path / "run")


def test_a_run_that_goes_on(run: WatchedRun) -> None:
    follower = watch(run)
    with run.going_on():
        first = follower.poll()
        assert (first.life.life, first.life.pid) == (Life.RUNNING, os.getpid())
        assert (first.name, first.job_id, first.step, first.steps, first.rest_s) == ("watched", "job-1", 0, 4, None)
        run.evaluation(0, 0.25)
        run.step(1, trajectory(reward=1.0), trajectory(repetition=1, reward=0.0), usage__gpu_seconds=20.0)
        (run.folder.turns).mkdir()
        run.folder.turn_log("a").touch()
        state = follower.poll()
        assert (state.step, state.rows[0].reward, state.rows[0].signal, state.under_way) == (1, 0.5, 1.0, 1)
        assert state.rest_s is not None
        assert 0 <= state.rest_s <= 6.0  # three steps of two seconds
        assert str(state.used) == "20 GPU s; a step: 20 GPU s; a rollout: 10 GPU s"
        assert [(one.step, one.score) for one in state.evaluations] == [(0, 0.25)]
        run.step(2, trajectory(), usage__gpu_seconds=10.0)
        assert follower.poll().used.a_step == {"gpu_seconds": 15.0}


@pytest.mark.parametrize(
    ("end", "life", "said"),
    [
        (None, Life.FINISHED, "finished"),
        (asyncio.CancelledError(), Life.STOPPED, "stopped"),
        (UserError("no such\nmodel"), Life.FAILED, "failed: no such model"),
        (ExceptionGroup("tasks", [UserError("no such model")]), Life.FAILED, "failed: no such model"),
    ],
)
def test_how_it_ended(run: WatchedRun, end: BaseException | None, life: Life, said: str) -> None:
    with run.going_on(end):
        run.step(1, trajectory())
    state = watch(run).poll()
    assert (state.life.life, str(state.life), state.rest_s) == (life, said, None)
    with run.going_on():
        assert watch(run).poll().is_running
    assert watch(run).poll().life.life is Life.FINISHED


def test_a_killed_run_is_told_from_one_that_goes_on(run: WatchedRun) -> None:
    with run.going_on():
        run.step(1, trajectory())
    run.folder.launcher_pid.write_text(f"{ended_pid()}\n")
    assert watch(run).poll().life.life is Life.KILLED


@pytest.mark.parametrize("change", [{"boot_id": "another machine's"}, {"started": 1}])
def test_another_process_with_the_number_is_not_the_run(run: WatchedRun, change: dict[str, Any]) -> None:
    with run.going_on():
        own = json.loads(run.folder.launcher.read_text())
        assert own["pid"] == int(run.folder.launcher_pid.read_text()) == os.getpid()
        run.folder.launcher.write_text(json.dumps(own | change))
        assert watch(run).poll().life.life is Life.KILLED
        run.folder.launcher.write_text(json.dumps(own))
        assert watch(run).poll().life.life is Life.RUNNING
    assert not list(run.folder.root.glob("launcher.*"))


@pytest.mark.parametrize(
    "left", ["", "[1]", '{"pid": 1e999}', "[" * 100_000, '{"pid": 1, "boot_id": "x", "started": 2}']
)
def test_a_folder_that_names_no_process_of_that_number_is_judged_by_the_number(run: WatchedRun, left: str) -> None:
    with run.going_on():
        run.folder.launcher.write_text(left)
        assert watch(run).poll().life.life is Life.RUNNING


def test_a_process_that_is_younger_than_the_number_is_not_the_run(run: WatchedRun) -> None:
    with run.going_on():
        run.folder.launcher.unlink()
        assert watch(run).poll().life.life is Life.RUNNING
        long_ago = 1.0
        os.utime(run.folder.launcher_pid, (long_ago, long_ago))
        assert watch(run).poll().life.life is Life.KILLED


def test_a_log_that_says_nothing_of_the_end(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    run.folder.log.write_text("2026-01-01 00:00:00,000 INFO drydock.training.loop: checkpoint\n")
    state = watch(run).poll()
    assert (state.life.life, state.steps) == (Life.OVER, None)
    run.step(1, trajectory())
    assert watch(run).poll().steps == 100
    assert state.log_tail == ("2026-01-01 00:00:00,000 INFO drydock.training.loop: checkpoint",)


def test_an_evaluation_on_its_own_has_no_steps(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    run.evaluation(0, 0.5)
    state = watch(run).poll()
    assert (state.steps, state.rows, [one.score for one in state.evaluations]) == (None, (), [0.5])
    assert next(islice(map(str, head(state)), 1, None)) == "no step"


def test_steps_that_are_taken_back_are_forgotten(run: WatchedRun) -> None:
    follower = watch(run)
    finding = StepFinding(3, "mismatch", "warn", "too far", Blame.INFRASTRUCTURE, "look")
    with run.going_on():
        for number in (1, 2, 3):
            run.step(number, trajectory(), usage__gpu_seconds=1.0)
        run.finding(finding)
        before = follower.poll()
        assert (before.step, [one.check for one in before.standing]) == (3, ["mismatch"])
        run.back_to(1)
        after = follower.poll()
        assert (after.step, after.standing, after.past, after.used.whole) == (1, (), (), {"gpu_seconds": 1.0})
        run.step(2, trajectory(reward=0.0))
        assert [(row.step, row.reward) for row in follower.poll().rows] == [(1, 1.0), (2, 0.0)]


def test_another_run_in_the_same_place_is_followed(run: WatchedRun) -> None:
    follower = watch(run)
    with run.going_on():
        run.step(1, trajectory())
        assert follower.poll().step == 1
    shutil.move(run.folder.root, run.folder.root.with_name("run.1"))
    gone = follower.poll()
    assert (gone.step, gone.problems) == (0, (f"{run.folder.root} is gone: it was moved or deleted",))
    other = WatchedRun(RunFolder(run.folder.root, "other"), 7)
    other.folder.root.mkdir()
    with other.going_on():
        state = follower.poll()
        assert (state.name, state.steps, state.step, state.problems) == ("other", 7, 0, ())


def test_outcomes_come_with_blame_and_an_example(run: WatchedRun) -> None:
    broken = trajectory("fix", None, repetition=1, outcome=Outcome.SANDBOX_ERROR, error="disk\nis full")
    broken.blame = Blame.INFRASTRUCTURE
    replaced = broken.model_copy(update={"replaced": True, "blame": Blame.TASK, "error": "first try"})
    run.folder.config.write_text(run.config())
    replaced.write(run.folder.trajectories(1, "train"))
    run.step(1, trajectory("fix"), trajectory("other"), broken)
    counts = watch(run).poll().outcomes
    assert [(one.outcome, one.count, one.blames) for one in counts] == [
        ("graded", 2, ()),
        ("sandbox_error", 1, (("infrastructure", 1),)),
    ]
    assert counts[1].example == "fix: disk\nis full"


@pytest.mark.parametrize("cut", ["cancelled", "graded in vain"])
def test_a_group_that_the_step_did_not_wait_for_is_in_no_count(run: WatchedRun, cut: str) -> None:
    broken = [
        trajectory(task, None, repetition=one, outcome=Outcome.SANDBOX_ERROR, error=f"{task} broke")
        for task, number in (("a", 5), ("b", 2))
        for one in range(number)
    ]
    for one in broken:
        one.blame = Blame.INFRASTRUCTURE
    late = (
        [trajectory("a", None, repetition=5, outcome=Outcome.CANCELLED)]
        if cut == "cancelled"
        else [trajectory("a", float(one), repetition=5 + one) for one in range(2)]
    )
    run.folder.config.write_text(run.config())
    for one in (*broken[:5], *late):
        one.write(run.folder.trajectories(1, "train"))
    run.step(1, *broken[5:], trajectory("b", repetition=2))
    counts = {one.outcome: one for one in watch(run).poll().outcomes}
    assert (counts["sandbox_error"].count, counts["sandbox_error"].blames) == (2, (("infrastructure", 2),))
    assert counts["sandbox_error"].example == "b: b broke"


def test_findings_are_grouped_and_told_apart_by_whether_they_hold(run: WatchedRun) -> None:
    follower = watch(run)
    run.folder.config.write_text(run.config())
    for step in (1, 2, 3):
        run.step(step, trajectory())
        run.finding(StepFinding(step, "no_signal", "warn", f"cause {step}", Blame.TASK, "other tasks", ("a.json",)))
    run.finding(StepFinding(2, "task_errors", "warn", "broken", Blame.TASK, "mend it", about="fix"))
    run.finding(StepFinding(3, "gradient", "stop", "NaN", Blame.MODEL, "lower lr"))
    state = follower.poll()
    assert [(one.check, one.where) for one in state.standing] == [
        ("gradient", "step 3"),
        ("no_signal", "3 times in steps 1 to 3"),
    ]
    assert (state.standing[1].cause, state.standing[1].evidence) == ("cause 3", ("a.json",))
    assert [(one.check, one.about) for one in state.past] == [("task_errors", "fix")]


def test_what_cannot_be_read_is_said_and_left_out(run: WatchedRun) -> None:
    follower = watch(run)
    run.folder.config.write_text("[trainer]\nrun_na")
    assert follower.poll().problems == (f"{run.folder.config} cannot be read as a run's configuration",)
    run.folder.config.write_text(run.config())
    run.step(1, trajectory())
    with run.folder.metrics.open("a") as stream:
        stream.write('{"step": 2, "reward/a\n')
        stream.write('{"step": 3, "reward/avg_raw_reward": "x", "outcome/graded": [], "timing/step": 1e999}\n{"st')
    run.folder.job_id.mkdir()
    run.folder.launcher_pid.write_text("soon")
    state = follower.poll()
    assert state.problems == ("1 line of metrics.jsonl cannot be read and left out",)
    assert (state.step, state.rows[-1].reward, state.rows[-1].seconds, state.job_id) == (3, None, None, "")


def test_numbers_that_are_too_great_and_lists_that_are_too_deep_are_left_out(run: WatchedRun) -> None:
    great, deep = f"1{'0' * 400}", "[" * 100_000
    run.folder.config.write_text(f"{run.config()}\ndeep = {deep}")
    assert watch(run).poll().problems == (f"{run.folder.config} cannot be read as a run's configuration",)
    with run.going_on(max_training_steps=int(great)):
        logging.getLogger("drydock.training.loop").info("%s %s", STEPS, great)
        run.step(1, trajectory(), trajectory("fix", None, outcome=Outcome.SANDBOX_ERROR))
        with run.folder.metrics.open("a") as stream:
            stream.write(f'{{"step": {great}}}\n{{"step": 2, "a": {deep}\n')
            stream.write(f'{{"step": 2, "outcome/x": {great}, "outcome/harness_error": 1, "timing/step": {great}}}\n')
        for name, odd in (("a.json", deep), ("b.json", '{"task": "t", "outcome": "graded", "repetition": 1e999}')):
            (run.folder.trajectories(2, "train") / name).parent.mkdir(parents=True, exist_ok=True)
            (run.folder.trajectories(2, "train") / name).write_text(odd)
        state = watch(run).poll()
    assert state.problems == ("2 lines of metrics.jsonl cannot be read and left out",)
    assert (state.step, state.steps, state.rows[-1].seconds) == (2, None, None)
    assert state.outcomes == (OutcomeCount("harness_error", 1),)


def test_the_configuration_is_read_again_when_it_changed(run: WatchedRun) -> None:
    follower = watch(run)
    run.folder.config.write_text(f"{run.config()}\n# {'x' * 100_000}\n")
    follower.poll()
    follower.poll()
    before = bytes_read()
    assert follower.poll().settings == RunSettings("watched", "tiny/model", False, 100, 0, False)
    assert bytes_read() - before < 50_000
    run.folder.config.write_text(run.config(max_training_steps=7))
    settings = follower.poll().settings
    assert settings is not None
    assert settings.most_steps == 7


def test_dropped_tasks_are_told(run: WatchedRun) -> None:
    run.folder.config.write_text(run.config())
    run.folder.dropped_tasks.write_text(json.dumps({"task": "fix", "step": 2, "cause": "verifier_error"}) + "\n")
    assert [task["task"] for task in watch(run).poll().dropped] == ["fix"]


def test_a_supervised_run_has_losses(run: WatchedRun) -> None:
    run.folder.config.write_text('[trainer]\nrun_name = "watched"\n')
    run.folder.metrics.write_text('{"step": 0, "eval/loss": 2.0}\n{"step": 1, "train/loss": 1.5}\n')
    state = watch(run).poll()
    assert (state.supervised, state.rows[0].loss, state.evaluations[0].score) == (True, 1.5, 2.0)


@given(step=st.integers(0, 30), more=st.integers(0, 30), interval=st.integers(0, 7), at_the_end=st.booleans())
def test_evaluations_to_come_are_those_that_the_loop_makes(
    step: int, more: int, interval: int, at_the_end: bool
) -> None:
    last = step + more
    settings = RunSettings("run", "", False, None, interval, at_the_end)
    made = sum(
        bool((interval and one % interval == 0) or (one == last and at_the_end)) for one in range(step + 1, last + 1)
    )
    assert settings.evaluations_after(step, last) == made

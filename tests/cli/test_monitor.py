"""`drydock monitor` as it is started: on a terminal, printed once, as JSON, and without a run."""

import json
import os
from pathlib import Path

import pytest
from builders.command import drydock, drydock_on_a_terminal
from builders.trajectories import trajectory
from builders.watched_run import WatchedRun

from drydock.errors import Blame
from drydock.rollout.outcome import Outcome
from drydock.training.diagnosis.finding import StepFinding


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three steps with everything that can be told of one."""
    run = WatchedRun.made(tmp_path_factory.mktemp("monitor") / "runs" / "own", steps=3)
    broken = trajectory("fix", None, repetition=1, outcome=Outcome.SANDBOX_ERROR, error="disk\x1b[2J is full")
    broken.blame = Blame.INFRASTRUCTURE
    with run.going_on():
        run.evaluation(0, 0.25)
        for step in (1, 2):
            run.step(step, trajectory("fix", 0.5), usage__gpu_seconds=10.0, usage__cost=0.5)
        run.step(3, trajectory("fix", 1.0), broken, usage__gpu_seconds=10.0, diagnosis__task_errors=1)
        run.evaluation(3, 0.75)
        run.finding(StepFinding(3, "task_errors", "warn", "2 of 2 broke", Blame.TASK, "mend it", ("a.error",), "fix"))
        run.folder.dropped_tasks.write_text(json.dumps({"task": "fix", "step": 3, "cause": "sandbox_error"}) + "\n")
    return run.folder.root


def test_printed_once_it_says_everything(finished: Path) -> None:
    shown = drydock("monitor", finished, "--once").stdout
    for said in (
        "watched  finished",
        "step 3 of 3, 2.0 s a step",
        "job job-1, model tiny/model",
        "used 30 GPU s, 1 cost; a step: 10 GPU s, 0.333 cost; a rollout: 7.5 GPU s, 0.25 cost",
        "◆ held-out 0.250 to 0.750",
        "last evaluation, after step 3: 0.750 (0.650 to 0.850)",
        "   1 sandbox_error  blame: infrastructure 1",
        "fix: disk␛[2J is full",
        "warn task_errors (blame: task, step 3): 2 of 2 broke",
        "  do: mend it",
        "  see a.error",
        "dropped fix in step 3: sandbox_error",
        "the run is at its end",
    ):
        assert said in shown
    assert "\x1b" not in shown
    last = next(line for line in shown.splitlines() if line.strip().startswith("3 "))
    assert last.split()[:7] == ["3", "1.000", "0.750", "1", "1", "0%", "1"]


def test_for_programs_it_is_json(finished: Path) -> None:
    told = json.loads(drydock("monitor", finished, "--json").stdout)
    assert (told["state"], told["pid"], told["step"], told["steps"], told["rest_s"]) == ("finished", None, 3, 3, None)
    assert [row["reward"] for row in told["last_steps"]] == [0.5, 0.5, 1.0]
    assert told["outcomes"][1]["blames"] == {"infrastructure": 1}
    assert [(one["check"], one["standing"]) for one in told["findings"]] == [("task_errors", True)]
    assert told["used"]["a_step"]["gpu_seconds"] == 10.0


def test_the_newest_run_is_meant_where_none_is_named(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = WatchedRun.made(finished.parent / "older")
    older.folder.config.write_text(older.config())
    os.utime(older.folder.config, (1.0, 1.0))
    monkeypatch.chdir(finished.parents[1])
    assert json.loads(drydock("monitor", "--json").stdout)["run_folder"] == str(finished)
    monkeypatch.chdir(tmp_path)
    nothing = drydock("monitor", "--json", check=False)
    assert (nothing.returncode, f"there is no run below {tmp_path / 'runs'}" in nothing.stderr) == (2, True)


def test_what_is_no_run_is_refused_with_a_hint(finished: Path, tmp_path: Path) -> None:
    for named, said in (
        (tmp_path / "missing", "there is no folder"),
        (finished / "config.toml", "is a file: name the folder of a run"),
        (finished.parent, f"it has no config.toml; there is one in {finished.parent}"),
        (tmp_path, "it has no config.toml: name the folder of a run"),
    ):
        done = drydock("monitor", named, "--once", check=False)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_without_a_terminal_it_names_the_other_ways(finished: Path) -> None:
    done = drydock("monitor", finished, check=False)
    assert done.returncode == 2
    assert "there is no terminal to show the run in: print it with --once" in done.stderr


def test_on_a_terminal_it_is_live_until_q(finished: Path) -> None:
    code, shown = drydock_on_a_terminal("monitor", finished, types="q", after="held-out")
    assert code == 0, shown
    assert "Traceback" not in shown

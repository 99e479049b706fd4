"""The published recipe's launcher, small enough for a CPU: its commands give what they promise."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest
from builders.demo_run import DIFFERENT_REWARDS, build_demo_run
from builders.driver import processes_of
from builders.local_sandbox import needs_sandbox

from drydock.rollout.trajectory import Trajectory

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "rl" / "harbor" / "run_qwen35_4b.sh"
AS_PUBLISHED = ("trainer.max_training_steps=100", "trainer.eval_before_train=true", "trainer.eval_interval=10")
SMALL = (
    "trainer.train_batch_size=2",
    "generator.n_samples_per_prompt=2",
    "generator.max_turns=2",
    "generator.max_input_length=512",
    "generator.sampling_params.max_generate_length=16",
    "generator.unsubmitted=grade",
    "service.n_gpus_training=1",
    "service.n_gpus_sampling=1",
)
SLOW_AND_DIFFERENT = DIFFERENT_REWARDS.replace("\n", "\nsleep 4\n", 1)


def environment(folder: Path) -> dict[str, str]:
    ours = ("ARCTIC_CORTEX_", "DRYDOCK_", "HARBOR_", "OPENHANDS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **kept,
        "DRYDOCK": str(Path(sys.executable).with_name("drydock")),
        "TRAIN_HARBOR_TASKS": "data/train/train-0000:data/train/train-0001",
        "MODEL": "data/model",
        "CKPT_DIR": "run",
        "RUN_NAME": "small",
        "LOGGER": "console",
        "STARTUP_TIMEOUT": "300",
        "OPENHANDS_TOOLS": "terminal,finish",
        "OPENHANDS_SYSTEM_PROMPT_FILE": "data/system_prompt.j2",
        "OPENHANDS_WORKSPACE": str(folder / "state"),
        "ARCTIC_CORTEX_JOB_COMMENT": "small by hand",
        "COLUMNS": "200",
    }


def prepared(folder: Path, verifier: str) -> dict[str, str]:
    """The environment of a run on two of the demo's tasks."""
    build_demo_run(folder / "data", train_tasks=2, verifier=verifier).unlink()
    return environment(folder)


def trainer(driver_pid: int, run: Path) -> psutil.Process:
    """The training sub-job's process of the service that the run started."""
    [job] = (run / "service" / "jobs").iterdir()
    folder = str(job / "training-0")
    workers = psutil.Process(driver_pid).children(recursive=True)
    [found] = [one for one in workers if any(file.path.startswith(folder) for file in one.open_files())]
    return found


def shell(command: str, folder: Path) -> str:
    return subprocess.run(["bash", "-c", command], cwd=folder, text=True, check=True, capture_output=True).stdout


@needs_sandbox
@pytest.mark.sandbox
@pytest.mark.timeout(180)
def test_the_published_command_trains_and_can_be_followed(tmp_path: Path) -> None:
    variables = prepared(tmp_path, DIFFERENT_REWARDS)
    words = [str(SCRIPT), *AS_PUBLISHED, *SMALL]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trainer.max_training_steps is 100, but 1 pass over 2 tasks make 1 step" in done.stdout
    assert "evaluations use the training tasks" in done.stdout
    assert re.search(r"doing nothing earns 0\.1\d*, more than its baseline of 0; .*\nwarning: see what", done.stdout)
    assert re.search(r"used: .* CPU slot s.*; a step: .*; a rollout: .* sampled tokens", done.stdout)
    resolved = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert resolved["trainer"]["policy"]["optimizer_config"]["lr"] == 1e-6
    assert (resolved["trainer"]["eval_interval"], resolved["generator"]["max_turns"]) == (10, 2)
    assert resolved["deadlines"]["job_running_s"] == 300
    finished = shell("sed -n '/step /p' run/small.log | grep -c \"'reward/avg_raw_reward'\"", tmp_path)
    assert finished.strip() == "1"
    with sqlite3.connect(tmp_path / "run" / "service" / "service.sqlite") as store:
        assert store.execute("select comment, status from jobs").fetchall() == [("small by hand", "cancelled")]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [0, 1]
    for record, split in zip(records, ("eval", "train"), strict=True):
        files = (tmp_path / "run" / "trajectories" / f"step_{record['step']}" / split).iterdir()
        turns = [turn for file in files for turn in Trajectory.read(file).record.turns]
        assert record["usage/sampled_tokens"] == sum(len(turn.sampled_ids) for turn in turns)
        assert record["usage/prompt_tokens"] == sum(turn.prompt_length for turn in turns)
    assert all(record["usage/cpu_slot_seconds"] > 0 for record in records)
    again = subprocess.run([*words, "--dry-run"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert re.search(r"time and cost: about .* CPU slot s, .*; by 6 rollouts of the run in", again.stdout), again.stdout
    assert (tmp_path / "run" / "config.toml").exists()  # the run that was measured is left as it is


@needs_sandbox
@pytest.mark.sandbox
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_trajectories_are_there_before_the_training_and_a_signal_to_the_launchers_pid_stops_the_run(
    tmp_path: Path,
) -> None:
    variables = prepared(tmp_path, SLOW_AND_DIFFERENT)
    words = [str(SCRIPT), *SMALL]
    with (tmp_path / "output").open("w") as output:
        running = subprocess.Popen(words, cwd=tmp_path, env=variables, stdout=output, stderr=output)
        try:
            while "step 1 of 1: rollouts" not in (tmp_path / "output").read_text():
                assert running.poll() is None, (tmp_path / "output").read_text()
                shell("sleep 0.2", tmp_path)
            trainer(running.pid, tmp_path / "run").suspend()
            step = tmp_path / "run" / "trajectories" / "step_1" / "train"
            while len(list(step.glob("*.json"))) < 4:
                assert running.poll() is None, (tmp_path / "output").read_text()
                shell("sleep 0.2", tmp_path)
            assert not (tmp_path / "run" / "metrics.jsonl").exists()
            shell("kill -TERM $(cat run/launcher.pid)", tmp_path)
            assert running.wait(40) == 128 + signal.SIGTERM
        finally:
            running.kill()
    assert not (tmp_path / "run" / "launcher.pid").exists()
    assert processes_of(tmp_path / "state") == []
    with sqlite3.connect(tmp_path / "run" / "service" / "service.sqlite") as store:
        assert store.execute("select status from jobs").fetchall() == [("cancelled",)]


@needs_sandbox
@pytest.mark.sandbox
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_dry_run_that_measures_makes_one_rollout_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    variables = {**prepared(tmp_path, DIFFERENT_REWARDS), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    words = [str(SCRIPT), "--dry-run", "--measure", *SMALL]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"time and cost: about .* CPU slot s, .* sampled tokens, .*; by one rollout \(", done.stdout)
    assert list((tmp_path / "tmp").glob("drydock*")) == []
    assert not (tmp_path / "run").exists()
    assert processes_of(tmp_path / "state") == []


def test_without_a_dry_run_nothing_is_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(SCRIPT), "--measure"], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "belongs to --dry-run" in done.stderr


def test_without_tasks_the_launcher_says_what_is_missing(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    del variables["TRAIN_HARBOR_TASKS"]
    done = subprocess.run([str(SCRIPT)], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode != 0
    assert "TRAIN_HARBOR_TASKS: is not set" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_the_recipes_defaults_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    variables = {**environment(tmp_path), "TRAIN_HARBOR_TASKS": str(folder), "CKPT_DIR": "out/run"}
    build_demo_run(tmp_path / "data", train_tasks=8).unlink()
    (tmp_path / "data" / "train").rename(folder)
    fits = ["generator.max_input_length=512", "generator.sampling_params.max_generate_length=64"]
    gpus = ["service.n_gpus_training=1", "service.n_gpus_sampling=1"]
    before = set(tmp_path.rglob("*"))
    done = subprocess.run(
        [str(SCRIPT), "--dry-run", *fits, *gpus], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "tasks:         8 to train on",
        "steps:         1, each 8 tasks x 8 rollouts; 0 evaluations",
        "rollouts:      64 to train on",
        f"tokens:        {64 * 512:,} sampled and {64 * 512:,} trained at most",
        "time and cost: not known, no rollout was measured",
    ):
        assert line in done.stdout
    written = tmp_path / "out" / "run.dry-run.toml"
    assert set(tmp_path.rglob("*")) - before == {written, written.parent}
    trainer = tomllib.loads(written.read_text())["trainer"]
    assert (trainer["ckpt_path"], trainer["ckpt_interval"]) == (str(tmp_path / "out" / "run"), 10)
    algorithm = trainer["algorithm"]
    assert (algorithm["policy_loss_type"], algorithm["eps_clip_low"], algorithm["eps_clip_high"]) == (
        "gspo",
        3e-4,
        4e-4,
    )
    assert algorithm["loss_reduction"] == "sequence_mean"
    shutil.rmtree(folder)
    refused = subprocess.run([str(SCRIPT), "--dry-run"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "no such task directory" in refused.stderr

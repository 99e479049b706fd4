"""`drydock train` from end to end: what a run leaves behind, and what it does not."""

import json
import signal
import sqlite3
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from builders.command import drydock
from builders.demo_run import DIFFERENT_REWARDS, NO_REWARD, SLOW, build_demo_run
from builders.driver import Driver, driver, mounts_below, processes_of
from builders.local_sandbox import needs_sandbox

from drydock.rollout.trajectory import Trajectory

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(180),
    needs_sandbox,
]


def job_statuses(run_folder: Path) -> list[str]:
    with sqlite3.connect(run_folder / "service" / "service.sqlite") as store:
        return [status for (status,) in store.execute("select status from jobs")]


def seen_by_the_monitor(run_folder: Path) -> dict[str, Any]:
    return json.loads(drydock("monitor", run_folder, "--json").stdout)


def assert_nothing_is_left(running: Driver, *folders: Path) -> None:
    assert processes_of(running.state_dir) == []
    assert list((running.state_dir / "sandboxes").glob("*")) == []
    assert mounts_below(running.state_dir, *folders) == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """Folder, output and exit code of a run that was left to itself; an earlier run's folder was in its place."""
    folder = tmp_path_factory.mktemp("finished")
    config = build_demo_run(folder / "data", verifier=DIFFERENT_REWARDS)
    run, state = folder / "run", folder / "state"
    run.mkdir()
    (run / "config.toml").write_text("# an earlier run\n")
    settings = [f"sandbox.state_dir={state}", f"data.eval={folder / 'data' / 'train'}"]
    with driver(["train", str(config), *settings], state, folder, {"CKPT_DIR": str(run)}) as running:
        running.wait_for(r"step 1 of 2: rollouts")
        watched = seen_by_the_monitor(run)
        assert (watched["state"], watched["pid"], watched["steps"]) == ("running", running.process.pid, 2)
        before = running.footprint()
        assert "libtorch" not in Path(f"/proc/{running.process.pid}/maps").read_text()
        code = running.end()
        assert before.remains() == []
        assert_nothing_is_left(running, run)
    assert len(before.processes) >= 4  # driver, API process, trainer, sampler
    assert len(before.ports) >= 1
    return run, running.output, code


def test_a_run_ends_well_and_says_where_everything_is(finished: tuple[Path, str, int]) -> None:
    run, output, code = finished
    assert code == 0, output
    for line in ("evaluation at step 0", "0 of them re-tokenized, 0 of them not in the sampler's record"):
        assert line in output
    for path in ("reward_graph.svg", "metrics.jsonl", "trajectories", "mini.log"):
        assert str(run / path) in output
    assert "rollouts: 8 graded, 0 masked" in output


def test_every_wait_has_a_name(finished: tuple[Path, str, int]) -> None:
    _, output, _ = finished
    for wait in (
        "the agent harness to be imported",
        "the preflight of task train-0000",
        "the embedded training service to start",
        "the training service to accept the job",
        "warm start 1, clean",
        "the sampler to take the warm-started weights",
        "evaluation at step 0: rollouts",
        "step 2 of 2: rollouts",
        "the checkpoint of step 2",
        "everything to be stopped",
    ):
        assert wait in output


def test_warnings_and_the_earlier_run_are_said(finished: tuple[Path, str, int]) -> None:
    run, output, _ = finished
    assert "warning: data.eval and data.train are the same tasks" in output
    assert f"the earlier run in {run} is kept as {run}.1" in output
    assert (run.with_name("run.1") / "config.toml").read_text() == "# an earlier run\n"


def test_the_runs_folder_holds_what_the_design_names(finished: tuple[Path, str, int]) -> None:
    run, _, _ = finished
    resolved = tomllib.loads((run / "config.toml").read_text())
    assert resolved["trainer"]["max_training_steps"] == 2
    assert (run / "job_id").read_text().strip()
    assert not (run / "launcher.pid").exists()
    assert (run / "reward_graph.svg").read_text().startswith("<?xml")
    assert (run / "reward_graph.png").read_bytes().startswith(b"\x89PNG")
    counts = {
        str(folder.relative_to(run / "trajectories")): sorted(file.suffix for file in folder.iterdir())
        for folder in (run / "trajectories").glob("*/*")
    }
    assert counts == {
        f"step_{step}/{split}": [".json"] * 4 for step, split in ((0, "eval"), (1, "train"), (2, "train"), (2, "eval"))
    }
    checkpoint = run / "checkpoints" / "step_2"
    assert any(checkpoint.rglob("*.safetensors"))
    assert any(checkpoint.rglob("config.json"))
    assert not list(run.rglob("*.partial"))
    assert list((run / "turns").iterdir()) == []


def test_metrics_and_log_have_the_published_names(finished: tuple[Path, str, int]) -> None:
    run, _, _ = finished
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [0, 1, 2, 2]
    for evaluation in (records[0], records[3]):
        assert {"eval/all/avg_score", "eval/all/pass_at_1", "timing/eval"} <= evaluation.keys()
    for step in records[1:3]:
        assert {
            "reward/avg_raw_reward",
            "policy/policy_loss",
            "policy/raw_grad_norm",
            "policy/policy_lr",
            "generate/avg_num_tokens",
            "generate/trained_tokens",
            "timing/generate",
            "timing/sync_weights",
            "timing/step",
        } <= step.keys()
        assert 0 < step["reward/avg_raw_reward"] < 1
        assert step["policy/raw_grad_norm"] > 0
        assert 0 <= step["mismatch/logprob_diff_max"] < 1e-4
        assert step["tokens/retokenized"] == step["tokens/unrecorded"] == 0
    assert records[2]["policy/version"] == records[1]["policy/version"] + 1
    log = (run / "mini.log").read_text()
    assert log.count("'reward/avg_raw_reward'") == 2
    assert log.count("'eval/all/avg_score'") == 2
    assert "Traceback" not in log
    assert "ERROR" not in log


def test_trajectories_tell_under_which_policy_every_token_was_sampled(finished: tuple[Path, str, int]) -> None:
    run, _, _ = finished
    for step, version in ((1, 3), (2, 4)):  # three warm-start steps, then one optimizer step a training step
        files = sorted((run / "trajectories" / f"step_{step}" / "train").iterdir())
        trajectories = [Trajectory.read(file) for file in files]
        assert len({one.task for one in trajectories}) == 2
        assert {turn.policy_version for one in trajectories for turn in one.record.turns} == {version}
        for one in trajectories:
            assert one.advantage is not None
            assert one.reward is not None
            assert sum(sum(sample.loss_mask) for sample in one.record.samples) > 0
        for task in {one.task for one in trajectories}:
            assert sum(one.advantage or 0 for one in trajectories if one.task == task) == pytest.approx(0, abs=1e-9)


def test_the_monitor_tells_of_the_finished_run(finished: tuple[Path, str, int]) -> None:
    run, _, _ = finished
    told = seen_by_the_monitor(run)
    assert (told["state"], told["step"], told["steps"], told["rest_s"]) == ("finished", 2, 2, None)
    assert [(row["step"], row["graded"], row["masked"]) for row in told["last_steps"]] == [(1, 4, 0), (2, 4, 0)]
    assert [one["step"] for one in told["evaluations"]] == [0, 2]
    blamed = {one["outcome"]: one["blames"] for one in told["outcomes"]}
    assert sum(one["count"] for one in told["outcomes"]) == 4
    assert all(
        blames == ({} if outcome == "graded" else {"model": blames["model"]}) for outcome, blames in blamed.items()
    )
    assert told["used"]["a_step"]["sampled_tokens"] > 0
    assert told["problems"] == []


def test_the_job_is_cancelled_when_the_run_is_over(finished: tuple[Path, str, int]) -> None:
    run, _, _ = finished
    assert job_statuses(run) == ["cancelled"]


def test_the_audit_command_checks_the_files_again(finished: tuple[Path, str, int], tmp_path: Path) -> None:
    run, _, _ = finished
    with driver(["trajectories", "audit", str(run)], tmp_path, tmp_path) as clean:
        assert clean.end() == 0
    assert ", 0 of them re-tokenized, 0 of them not in the sampler's record" in clean.output
    forged = tmp_path / "forged" / "trajectories" / "step_1" / "train"
    forged.mkdir(parents=True)
    source = next((run / "trajectories" / "step_1" / "train").iterdir())
    trajectory = Trajectory.read(source)
    place = trajectory.record.samples[0].loss_mask.index(1)
    trajectory.record.samples[0].token_ids[place] += 1
    (forged / source.name).write_text(trajectory.model_dump_json())
    with driver(["trajectories", "audit", str(tmp_path / "forged")], tmp_path, tmp_path) as bad:
        assert bad.end() == 1


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],
    ids=lambda number: number.name,
)
def test_a_signal_in_the_middle_of_a_step_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    config = build_demo_run(tmp_path / "data", train_tasks=2, verifier=SLOW)
    run, state = tmp_path / "run", tmp_path / "state"
    settings = [
        f"sandbox.state_dir={state}",
        f"trainer.ckpt_path={run}",
        "trainer.eval_before_train=false",
        "warm_start=[]",
        "generator.n_samples_per_prompt=16",
    ]
    with driver(["train", str(config), *settings], state, tmp_path) as running:
        running.wait_for(r"step 1 of 1: rollouts")
        while not (before := running.footprint()).sandboxes:
            assert running.process.poll() is None, running.output
        seconds = running.stop(number)
        assert running.process.returncode == 128 + number, running.output
        assert seconds < 20
        assert before.remains() == []
        assert_nothing_is_left(running, run)
    assert f"{number.name}: stopping" in running.output
    assert "Traceback" not in running.output
    assert job_statuses(run) == ["cancelled"]
    assert not (run / "launcher.pid").exists()
    assert not (run / "metrics.jsonl").exists()
    assert "the run was stopped" in (run / "mini.log").read_text()
    assert seen_by_the_monitor(run)["state"] == "stopped"


def test_a_training_service_that_dies_ends_the_run_with_its_name(tmp_path: Path) -> None:
    config = build_demo_run(tmp_path / "data", train_tasks=2, verifier=SLOW)
    run, state = tmp_path / "run", tmp_path / "state"
    settings = [f"sandbox.state_dir={state}", f"trainer.ckpt_path={run}", "warm_start=[]"]
    arguments = ["train", str(config), *settings, "trainer.eval_before_train=false", "deadlines.shutdown_s=2"]
    with driver([*arguments, "generator.n_samples_per_prompt=16"], state, tmp_path) as running:
        running.wait_for("step 1 of 1: rollouts")
        before = running.footprint()
        servers = [one for one in before.processes if "drydock.service.server" in one.cmdline()]
        assert len(servers) == 1
        servers[0].kill()
        assert running.end() == 1
        assert before.remains() == []
        assert_nothing_is_left(running, run)
    assert "error (infrastructure): the training service was killed by signal 9" in running.output
    told = seen_by_the_monitor(run)
    assert (told["state"], "killed by signal 9" in told["cause"]) == ("failed", True)
    assert "Traceback" not in running.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "agent harness to be imported",
        "preflight of task",
        "embedded training service to start",
        "to accept the job",
        "to load its models",
        "… warm start 1, clean$",
        "evaluation at step 0: rollouts",
        "checkpoint of step 2",
        "everything to be stopped",
    ],
)
def test_a_signal_at_any_moment_leaves_nothing_running(tmp_path: Path, moment: str) -> None:
    config = build_demo_run(tmp_path / "data", verifier=DIFFERENT_REWARDS)
    run, state = tmp_path / "run", tmp_path / "state"
    arguments = ["train", str(config), f"sandbox.state_dir={state}", f"trainer.ckpt_path={run}"]
    with driver(arguments, state, tmp_path) as running:
        running.wait_for(f"(?m){moment}")
        before = running.footprint()
        assert running.stop(signal.SIGTERM) < 20
        assert running.process.returncode == 128 + signal.SIGTERM, running.output
        assert before.remains() == []
        assert_nothing_is_left(running, run)
    assert "Traceback" not in running.output
    if (run / "service" / "service.sqlite").exists():
        assert set(job_statuses(run)) <= {"cancelled"}


@pytest.mark.slow
def test_after_a_kill_nothing_runs_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    config = build_demo_run(tmp_path / "data", train_tasks=2, verifier=SLOW)
    run, state = tmp_path / "run", tmp_path / "state"
    settings = [f"sandbox.state_dir={state}", f"trainer.ckpt_path={run}", "warm_start=[]"]
    arguments = ["train", str(config), *settings, "trainer.eval_before_train=false"]
    with driver([*arguments, "generator.n_samples_per_prompt=16"], state, tmp_path) as running:
        running.wait_for("step 1 of 1: rollouts")
        while not (before := running.footprint()).sandboxes:
            assert running.process.poll() is None, running.output
        running.stop(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while before.remains() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert before.remains() == []
        assert processes_of(state) == []
    with driver(arguments, state, tmp_path) as again:
        assert again.end() == 0, again.output
        assert_nothing_is_left(again, run)
    assert "removed what a killed run left" in again.output
    assert f"is kept as {run}.1" in again.output


def test_a_task_that_never_works_is_dropped_and_the_run_goes_on(tmp_path: Path) -> None:
    config = build_demo_run(tmp_path / "data", train_tasks=2, verifier=DIFFERENT_REWARDS)
    broken = tmp_path / "data" / "train" / "train-0001"
    (broken / "tests" / "test.sh").write_text(NO_REWARD)
    run, state = tmp_path / "run", tmp_path / "state"
    settings = [
        f"sandbox.state_dir={state}",
        "trainer.epochs=2",
        "trainer.eval_before_train=false",
        "trainer.eval_after_train=false",
        "trainer.save_final_checkpoint=false",
    ]
    with driver(["train", str(config), *settings], state, tmp_path, {"CKPT_DIR": str(run)}) as running:
        code = running.end()
        assert_nothing_is_left(running, run)
    assert code == 0, running.output
    assert "task train-0001 is dropped as broken: verifier_error (2 of 2, blame: task)" in running.output
    [line] = (run / "dropped_tasks.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == str(broken)
    first, second = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    assert (first["groups/retried"], first["tasks/dropped"], first["rollouts/graded"]) == (1, 1, 2)
    assert (second["groups/retried"], second["tasks/dropped"], second["rollouts/graded"]) == (0, 1, 2)
    steps = sorted(str(file.relative_to(run / "trajectories")) for file in run.glob("trajectories/*/train/*"))
    assert [name for name in steps if name.endswith(".error")] == [
        "step_1/train/train-0001_0.error",
        "step_1/train/train-0001_1.error",
    ]
    kept = Trajectory.read(run / "trajectories" / "step_1" / "train" / "train-0001_0.error")
    assert (kept.outcome, kept.evidence.verifier_output) == ("verifier_error", "the checker is broken")
    assert list((run / "turns").glob("*")) == []

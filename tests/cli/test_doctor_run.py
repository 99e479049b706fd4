"""`drydock doctor run.toml`: one answer on a whole run; and `drydock train` refuses all that is wrong at once."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders.demo_run import NO_REWARD
from builders.driver import driver
from builders.local_sandbox import needs_sandbox

from drydock.cli.main import main

KEYS = {"area", "name", "level", "detail", "remedy"}


@dataclass(frozen=True)
class Answer:
    """How `drydock` ended; the JSON that it printed, by area and check, and everything that it printed."""

    code: int
    rows: dict[tuple[str, str], dict[str, str]]
    output: str

    def level(self, area: str, name: str) -> str:
        return self.rows[area, name]["level"]


@dataclass(frozen=True)
class Workplace:
    """A complete miniature demo and where a run of it would write."""

    config: Path
    run: Path
    state: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    @property
    def settings(self) -> list[str]:
        return [str(self.config), f"trainer.ckpt_path={self.run}", f"sandbox.state_dir={self.state}"]

    def drydock(self, command: str, *words: str) -> Answer:
        self.patch.setattr(sys, "argv", ["drydock", command, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self.capture.readouterr()
        rows = json.loads(said.out) if said.out.startswith("[") else []
        assert all(set(row) == KEYS and bool(row["remedy"]) == (row["level"] != "pass") for row in rows), rows
        by_name = {(row["area"], row["name"]): row for row in rows}
        return Answer(int(ended.value.code or 0), by_name, said.out + said.err)

    def doctor(self, *words: str) -> Answer:
        """`drydock doctor` on the run, as JSON. Nothing of the run exists afterwards."""
        answer = self.drydock("doctor", *self.settings, "--json", *words)
        assert not self.run.exists()
        return answer


@pytest.fixture
def place(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Workplace:
    shutil.copytree(prepared, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.delenv("DRYDOCK_SERVICE_URL", raising=False)
    return Workplace(tmp_path / "data" / "run.toml", tmp_path / "run", tmp_path / "state", capsys, monkeypatch)


@needs_sandbox
@pytest.mark.sandbox
def test_a_good_run_passes_every_check_and_leaves_nothing(place: Workplace) -> None:
    answer = place.doctor("--deep")
    assert answer.code == 0, answer.output
    expected = {
        ("settings", "combination"),
        ("tasks", "files"),
        ("tasks", "environments"),
        *(("model", name) for name in ("chat template", "vocabulary", "weights")),
        *(("agent", name) for name in ("agent", "first prompts", "turns", "warm start")),
        *(("machine", name) for name in ("ptys", "trainer.ckpt_path", "sandbox.state_dir", "TMPDIR")),
        *(("runs", name) for name in ("drivers", "temporary files", "run folder")),
        ("service", "own service"),
        ("service", "capacity"),
        ("sandbox", "bwrap"),
        ("first-task", "graded"),
        *(("live-job", name) for name in ("job", "sampler", "log-probs", "step")),
    }
    assert expected <= set(answer.rows)
    judged = {key for key in expected if key[0] != "machine" and key[1] not in ("drivers", "temporary files")}
    assert {answer.rows[key]["level"] for key in judged} == {"pass"}


@needs_sandbox
@pytest.mark.sandbox
def test_areas_choose_and_a_failure_ends_with_1(place: Workplace) -> None:
    (place.config.parent / "train" / "train-0000" / "tests" / "test.sh").write_text(NO_REWARD)
    answer = place.doctor("first-task")
    assert (answer.code, set(answer.rows)) == (1, {("first-task", "graded")})
    assert "the checker is broken" in answer.rows["first-task", "graded"]["detail"]
    assert place.doctor("model", "tasks").code == 0


def test_a_live_job_is_made_by_default_only_where_it_is_cheap(place: Workplace) -> None:
    from drydock.cli.doctor_checks import checks_of_run
    from drydock.report.progress import RunProgress
    from drydock.training.config_file import load_run_config
    from drydock.training.preflight.run_checks import RunChecks
    from drydock.training.run_folder import RunFolder
    from drydock.training.run_service import Secrets

    def areas(deep: bool | None, *overrides: str) -> set[str]:
        run = load_run_config(place.config, overrides)
        checks = RunChecks(run, Secrets(), RunFolder(place.run, "mini"), place.state)
        return {check.area for check in checks_of_run(checks, deep, RunProgress())}

    assert "live-job" not in areas(False)
    assert "live-job" in areas(True, "service.base_url=http://127.0.0.1:9")
    assert "live-job" not in areas(None, "service.base_url=http://127.0.0.1:9")
    assert "live-job" not in areas(None, "trainer.policy.model.path=owner/name")


def test_words_that_cannot_be_read_end_with_2(place: Workplace) -> None:
    assert "seed is an unknown" not in place.drydock("doctor", str(place.config), "trainer.sead=1").output
    assert place.drydock("doctor", str(place.config), "trainer.sead=1").code == 2
    wrong = place.drydock("doctor", "model")
    assert wrong.code == 2
    assert "name its TOML file" in wrong.output


def test_the_machines_doctor_asks_the_service_that_is_named(place: Workplace) -> None:
    place.patch.setenv("DRYDOCK_SERVICE_URL", "http://127.0.0.1:9")
    place.patch.setenv("DRYDOCK_SERVICE_TOKEN", "very-secret")
    answer = place.drydock("doctor", "--json", "service")
    assert (answer.code, answer.level("service", "reachable")) == (1, "fail")
    assert "very-secret" not in answer.output


def test_train_refuses_everything_that_is_wrong_at_once(place: Workplace) -> None:
    place.state.mkdir()
    wrong = [
        "trainer.train_batch_size=99",
        "data.eval=/nowhere/tasks",
        "generator.n_samples_per_prompt=1",
        "trainer.policy.model.path=/nowhere/model",
        "service.n_gpus_training=4000",
        "trainer.ckpt_path=/proc/run",
    ]
    answer = place.drydock("train", *place.settings, *wrong)
    assert answer.code == 2
    for named in (
        "data.eval: no such task directory: /nowhere/tasks",
        "generator.n_samples_per_prompt is 1",
        "trainer.policy.model.path: no such model folder: /nowhere/model",
        "service.n_gpus_training + service.n_gpus_sampling = 4001",
        "trainer.ckpt_path: nothing can be written to /proc",
    ):
        assert answer.output.count(named) == 1, answer.output
    assert "Traceback" not in answer.output
    assert "the preflight of task" not in answer.output


def test_a_state_folder_that_cannot_be_used_is_refused(place: Workplace) -> None:
    answer = place.drydock("train", *place.settings, "sandbox.state_dir=/proc/state")
    assert answer.code == 2
    assert "set sandbox.state_dir to another" in answer.output
    assert "Traceback" not in answer.output


def test_the_prompts_of_an_agent_of_ones_own_are_not_judged(place: Workplace) -> None:
    own = ["agent.import_path=builders.own_agent:OwnAgent", "generator.max_input_length=40"]
    answer = place.doctor("agent", *own)
    assert answer.level("agent", "first prompts") == "pass"
    assert "of your own" in answer.rows["agent", "first prompts"]["detail"]


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("generator.max_input_length=40", "generator.max_input_length is 40 tokens, but the first prompt is as long"),
        ("generator.max_turns=900", "generator.max_turns is 900, but generator.max_input_length of 512 tokens"),
    ],
)
def test_a_context_too_small_is_refused_before_a_sandbox_starts(place: Workplace, override: str, named: str) -> None:
    answer = place.drydock("train", *place.settings, override)
    assert answer.code == 2
    assert named in answer.output
    assert "the preflight of task" not in answer.output
    assert not place.run.exists()


@needs_sandbox
@pytest.mark.sandbox
@pytest.mark.timeout(150)
@pytest.mark.slow
def test_what_a_killed_driver_left_is_said_at_the_next_start_and_prompts_are_as_long_as_foretold(
    place: Workplace, tmp_path: Path
) -> None:
    from drydock.chat.template import ChatTemplate
    from drydock.harness.prompt import system_prompt
    from drydock.harness.tool_schemas import tool_schemas
    from drydock.proxy.token_hash import TokenHash
    from drydock.rollout.trajectory import Trajectory
    from drydock.training.preflight.prompts import first_prompt_ids

    place.run.mkdir()
    for name, text in (("config.toml", ""), ("launcher.pid", "4194304\n"), ("job_id", "job-gone\n")):
        (place.run / name).write_text(text)
    settings = ["warm_start=[]", "trainer.eval_before_train=false", "trainer.eval_after_train=false"]
    settings += ["trainer.max_training_steps=1", "trainer.save_final_checkpoint=false"]
    with driver(["train", *place.settings, *settings], place.state, tmp_path, dict(os.environ)) as running:
        assert running.end(timeout_s=140) == 0, running.output
    assert "warning: the driver of the run" in running.output
    assert "drydock jobs cancel job-gone" in running.output
    template = ChatTemplate.load(place.config.parent / "model")
    tools = ["terminal", "finish"]
    prompt = system_prompt(place.config.parent / "system_prompt.j2", tools, max_turns=2)
    files = sorted((place.run / "trajectories" / "step_1" / "train").glob("*.json"))
    assert files
    for file in files:
        trajectory = Trajectory.read(file)
        task = place.config.parent / "train" / trajectory.task
        first = trajectory.record.turns[0]
        foretold = first_prompt_ids(task, template, prompt, tool_schemas(tools))
        assert (first.prompt_length, first.prompt_sha256) == (len(foretold), TokenHash().extended(foretold).hex)

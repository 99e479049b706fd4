"""What cannot work is refused by name, with the remedy, before anything exists; and what fails later is shown."""

import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders.demo_run import NO_REWARD
from builders.driver import driver, processes_of
from builders.local_sandbox import MISSING, needs_sandbox
from builders.training_server import TrainingServer

from drydock.cli.main import main
from drydock.rollout.trajectory import Trajectory


@dataclass(frozen=True)
class Refusal:
    """How a command that could not work ended; what it printed on both streams."""

    code: int
    output: str


@dataclass(frozen=True)
class Workplace:
    """A complete miniature demo (`config`, `data`), and where a run of it would write (`run`, `state`)."""

    config: Path
    run: Path
    state: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    @property
    def data(self) -> Path:
        return self.config.parent

    def train(self, *overrides: str) -> Refusal:
        """Run `drydock train` on the demo with overrides, in this process."""
        return self.drydock(
            "train", str(self.config), f"trainer.ckpt_path={self.run}", f"sandbox.state_dir={self.state}", *overrides
        )

    def drydock(self, *arguments: str) -> Refusal:
        self.patch.setattr(sys, "argv", ["drydock", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self.capture.readouterr()
        return Refusal(int(ended.value.code or 0), said.out + said.err)

    def refuses(self, *overrides: str) -> str:
        """Train with overrides that cannot work: nothing is left, and the command's message is returned."""
        refusal = self.train(*overrides)
        assert refusal.code == 2, refusal.output
        assert "Traceback" not in refusal.output
        assert not self.run.exists()
        assert "to accept the job" not in refusal.output
        sandboxes = self.state / "sandboxes"
        assert not sandboxes.exists() or not any(sandboxes.iterdir())
        return refusal.output[refusal.output.index("error (") :].replace("\n", " ")


@pytest.fixture
def place(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Workplace:
    shutil.copytree(prepared, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARBOR_ALLOW_HOST_EXEC", raising=False)
    return Workplace(tmp_path / "data" / "run.toml", tmp_path / "run", tmp_path / "state", capsys, monkeypatch)


def test_a_task_directory_that_is_missing_or_empty(place: Workplace) -> None:
    assert f"data.train: no such task directory: {place.data / 'nowhere'}" in place.refuses(
        f"data.train={place.data / 'nowhere'}"
    )
    (place.data / "empty").mkdir()
    said = place.refuses(f"data.eval={place.data / 'empty'}")
    assert f"data.eval: no Harbor task in {place.data / 'empty'}" in said
    assert "instruction.md, task.toml, environment, tests/test.sh" in said


@pytest.mark.parametrize("missing", ["tests/test.sh", "instruction.md", "task.toml", "environment"])
def test_an_incomplete_task(place: Workplace, missing: str) -> None:
    task = place.data / "train" / "train-0002"
    shutil.rmtree(task / missing) if missing == "environment" else (task / missing).unlink()
    said = place.refuses()
    assert f"data.train: the task {task} has no {missing}" in said
    assert "leave the task out" in said


@pytest.mark.parametrize(
    ("override", "offered"),
    [
        ("trainer.sead=1", "trainer.seed"),
        ("trianer.seed=1", "trainer?"),
        ("generator.max_turn=1", "generator.max_turns"),
        ("warm_start.0.stepz=1", "warm_start.0.steps"),
        ("sandbox.kwargs.storrage=disk", "storage"),
    ],
)
def test_an_unknown_key_offers_the_nearest_name(place: Workplace, override: str, offered: str) -> None:
    if override.startswith("sandbox.kwargs") and MISSING:
        pytest.skip("the sandbox's own options are checked by starting one")
    said = place.refuses(override)
    assert f"did you mean {offered}" in said


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["trainer.seed=abc"], "trainer.seed"),
        (["trainer.seed"], "section.key=value"),
        (["trainer=1", "trainer.seed=1"], "trainer.seed"),
        (["warm_start.7.steps=1"], "there are only 1 entries"),
        (["warm_start.0.conversations=nowhere.jsonl"], "nowhere.jsonl"),
        (["agent.system_prompt_file=nowhere.txt"], "nowhere.txt"),
        (['agent.tools=["terminal", "fly"]'], "unknown tool 'fly'"),
        (["agent.import_path=nowhere.module:Agent"], "nowhere.module"),
        (["sandbox.environment=dokcer"], "unknown sandbox 'dokcer'"),
        (["trainer.train_batch_size=5", "trainer.policy_mini_batch_size=5"], "holds only 4 tasks"),
    ],
)
def test_a_setting_that_cannot_work(place: Workplace, overrides: list[str], named: str) -> None:
    if MISSING and named in ("nowhere.jsonl", "nowhere.txt", "unknown tool 'fly'", "nowhere.module"):
        pytest.skip("the sandbox is checked first")
    assert named in place.refuses(*overrides)


@pytest.mark.parametrize("content", [None, b"[trainer", b"\xff\xfe\x00"])
def test_a_configuration_file_that_cannot_be_read(place: Workplace, content: bytes | None) -> None:
    place.config.unlink()
    if content is not None:
        place.config.write_bytes(content)
    assert str(place.config) in place.refuses()


def test_a_line_of_demonstrations_that_cannot_be_used(place: Workplace) -> None:
    if MISSING:
        pytest.skip("the sandbox is checked first")
    file = place.data / "demonstrations" / "clean.jsonl"
    file.write_text(file.read_text() + '{"messages": 1}\n')
    assert f"{file}:31: expected" in place.refuses()


@pytest.mark.parametrize(
    ("removed", "remedy"),
    [
        ("tokenizer.json", "save the model's fast tokenizer there"),
        ("chat_template.jinja", "has no chat template; put one into chat_template.jinja"),
        ("config.json", "give a Hugging Face model folder"),
        ("model.safetensors", "holds no weights"),
    ],
)
def test_a_model_folder_that_lacks_something(place: Workplace, removed: str, remedy: str) -> None:
    (place.data / "model" / removed).unlink()
    said = place.refuses()
    assert str(place.data / "model") in said
    assert remedy in said


def test_a_model_folder_that_does_not_exist(place: Workplace) -> None:
    assert "/nowhere/model" in place.refuses("trainer.policy.model.path=/nowhere/model")


def test_a_machine_without_bubblewrap_is_offered_the_trusted_host_run(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("setpriv", "unshare", "sh", "mount"):
        if found := shutil.which(program):
            (tmp_path / "bin" / program).symlink_to(found)
    place.patch.setenv("PATH", str(tmp_path / "bin"))
    said = place.refuses()
    assert "bwrap: not found, remedy: apt-get install bubblewrap" in said
    assert "HARBOR_ALLOW_HOST_EXEC=1" in said
    assert "sandbox.environment=host" in said


def test_a_machine_without_the_sandboxs_root_file_system(place: Workplace, tmp_path: Path) -> None:
    place.patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "drydock sandbox build" in place.refuses()


def test_the_host_sandbox_needs_permission(place: Workplace) -> None:
    said = place.refuses("sandbox.environment=host")
    assert "HARBOR_ALLOW_HOST_EXEC=1" in said


@needs_sandbox
@pytest.mark.sandbox
def test_a_first_task_whose_verifier_writes_no_reward(place: Workplace) -> None:
    (place.data / "train" / "train-0000" / "tests" / "test.sh").write_text(NO_REWARD)
    refusal = place.train()
    assert refusal.code == 1
    assert not place.run.exists()
    for part in ("error (task)", "train-0000", "RewardFileNotFoundError", "the checker is broken"):
        assert part in refusal.output
    assert "to accept the job" not in refusal.output


@needs_sandbox
@pytest.mark.sandbox
def test_a_first_task_whose_image_cannot_be_built(place: Workplace) -> None:
    dockerfile = place.data / "train" / "train-0000" / "environment" / "Dockerfile"
    dockerfile.write_text("FROM debian:bookworm-slim\nRUN echo cannot go on; false\n")
    refusal = place.train()
    assert refusal.code == 1
    assert not place.run.exists()
    assert f"{dockerfile.name}:2: RUN ended with status 1" in refusal.output
    assert "cannot go on" in refusal.output


def test_a_run_folder_with_something_else_in_it_is_left_alone(place: Workplace) -> None:
    place.run.mkdir()
    (place.run / "thesis.tex").write_text("years of work")
    refusal = place.train()
    assert refusal.code == 2
    assert f"{place.run} is not empty and holds no earlier run" in refusal.output
    assert [file.name for file in place.run.iterdir()] == ["thesis.tex"]
    place.patch.setenv("CKPT_DIR", ".")
    assert "holds no earlier run" in place.drydock("train", str(place.config)).output
    place.patch.setenv("CKPT_DIR", str(place.config))
    assert "is a file" in place.drydock("train", str(place.config)).output


def test_a_run_folder_in_which_a_run_is_going_on(place: Workplace) -> None:
    place.run.mkdir()
    (place.run / "config.toml").write_text("")
    (place.run / "launcher.pid").write_text(f"{os.getpid()}\n")
    refusal = place.train()
    assert refusal.code == 2
    assert f"a run is going on in {place.run} (process {os.getpid()})" in refusal.output


def test_a_second_run_in_one_folder(place: Workplace) -> None:
    from drydock.training.run_lock import run_lock

    with run_lock(place.state, place.run):
        said = place.refuses()
    assert f"another run is starting or going on in {place.run}" in said


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_taken_port(place: Workplace, tmp_path: Path) -> None:
    with taken_port() as port:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--state-dir", str(tmp_path / "service")]
        refusal = place.drydock("service", "start", *arguments)
    assert refusal.code == 2
    assert f"port {port} of 127.0.0.1 is taken; choose another port" in refusal.output
    assert not (tmp_path / "service" / "service.sqlite").exists()


def test_a_service_that_cannot_be_used(place: Workplace) -> None:
    if MISSING:
        pytest.skip("the sandbox is checked first")
    assert "base_url must be http" in place.refuses("service.base_url=nowhere")
    with TrainingServer().serving() as server:
        server.faults = [(401, {"message": "wrong token"})]
        refusal = place.train(f"service.base_url={server.url}")
        assert [path.split()[0] for path in server.paths()] == ["GET"]
    assert refusal.code == 2
    assert "wants a token (HTTP 401)" in refusal.output
    assert "remedy: set DRYDOCK_SERVICE_TOKEN" in refusal.output
    assert not place.run.exists()


def test_an_audit_of_something_else(place: Workplace, tmp_path: Path) -> None:
    assert "holds no trajectories" in place.drydock("trajectories", "audit", str(tmp_path)).output
    folder = tmp_path / "trajectories" / "step_1" / "train"
    folder.mkdir(parents=True)
    (folder / "t_0.json").write_text("{")
    refusal = place.drydock("trajectories", "audit", str(tmp_path))
    assert refusal.code == 2
    assert f"{folder / 't_0.json'} is not a trajectory file" in refusal.output


@needs_sandbox
@pytest.mark.sandbox
@pytest.mark.timeout(150)
def test_a_task_without_reward_is_masked_counted_and_shown(place: Workplace, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (place.data / "train" / f"train-000{number}" / "tests" / "test.sh").write_text(NO_REWARD)
    settings = [
        f"trainer.ckpt_path={place.run}",
        f"sandbox.state_dir={place.state}",
        "trainer.eval_before_train=false",
        "trainer.step_retries=1",
        "data.shuffle=false",
        "warm_start=[]",
    ]
    with driver(["train", str(place.config), *settings], place.state, tmp_path) as running:
        code = running.end(timeout_s=140)
    # the first step has a task that works and one that does not, the second step has none that works
    assert code == 1, running.output
    assert "step   1 of 2" in running.output
    assert "graded 2  masked 2" in running.output
    first = json.loads((place.run / "metrics.jsonl").read_text().splitlines()[0])
    assert (first["rollouts/graded"], first["rollouts/masked"]) == (2, 2)
    assert first["outcome/verifier_error"] == 2
    assert "step 2: none of its rollouts was graded in 2 attempts" in running.output
    assert "verifier_error (4 of 4, blame: task)" in running.output
    assert "Traceback" not in running.output
    for step, names in ((1, ["train-0001_0", "train-0001_1"]), (2, ["train-0002_0", "train-0003_1"])):
        for name in names:
            masked = Trajectory.read(place.run / "trajectories" / f"step_{step}" / "train" / f"{name}.error")
            assert masked.reward is None
            assert masked.advantage is None
            assert "RewardFileNotFoundError" in str(masked.error)
    assert processes_of(place.state) == []

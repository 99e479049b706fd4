"""`drydock eval` from end to end: a model on the embedded service, and a model behind an endpoint."""

import asyncio
import json
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from builders.demo_run import build_demo_run
from builders.driver import driver, mounts_below, processes_of
from builders.endpoint_server import EndpointServer, endpoint_server
from builders.local_sandbox import needs_sandbox
from builders.scripted_endpoint import call
from typer.testing import CliRunner

from drydock.cli.main import app
from drydock.rollout.trajectory import Trajectory
from drydock.service.embedded import EmbeddedService

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.timeout(180),
    needs_sandbox,
]

SOLVED = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
UNSOLVED = "#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n"
KEY = "sk-of-the-endpoint-8361"


def prepare(folder: Path) -> tuple[Path, list[str]]:
    """A run of two tasks, one of which is always solved and the other never; its file and settings."""
    config = build_demo_run(folder / "data", train_tasks=2, verifier=SOLVED)
    (folder / "data" / "train" / "train-0001" / "tests" / "test.sh").write_text(UNSOLVED)
    state = folder / "state"
    return config, [f"sandbox.state_dir={state}", f"data.eval={folder / 'data' / 'train'}"]


def evaluate(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    config, settings = prepare(folder)
    with driver(["eval", str(config), *settings, *arguments], folder / "state", folder, environment) as running:
        code = running.end()
    assert processes_of(running.state_dir) == []
    assert mounts_below(running.state_dir) == []
    return code, running.output


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "runs" / "mini-eval" / "evaluation.json").read_text())


def test_a_model_is_sampled_by_a_job_without_trainer(tmp_path: Path) -> None:
    code, output = evaluate(tmp_path, "generator.eval_n_samples_per_prompt=2")
    assert code == 0, output
    report = report_of(tmp_path)
    assert report["mean_reward"] == 0.5
    assert (report["interval"]["low"], report["interval"]["high"]) == (0, 1)
    assert [(one["k"], one["value"], one["tasks"]) for one in report["pass_at"]] == [(1, 0.5, 2), (2, 0.5, 2)]
    assert [(task["task"], task["reward"], task["graded"]) for task in report["tasks"]] == [
        ("train-0000", 1, 2),
        ("train-0001", 0, 2),
    ]
    assert report["trainable"] is True
    assert report["policy_versions"] == [0]
    assert report["sampled_tokens"] > 0
    assert "mean reward" in output
    assert "95% interval 0.000 to 1.000" in output
    run = tmp_path / "runs" / "mini-eval"
    files = sorted((run / "trajectories" / "step_0" / "eval").iterdir())
    assert [file.name for file in files] == [f"train-000{task}_{number}.json" for task in (0, 1) for number in (0, 1)]
    (record,) = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert record["eval/all/avg_score"] == record["eval/all/pass_at_2"] == 0.5
    assert (record["eval/all/ci_low"], record["eval/all/ci_high"]) == (0, 1)
    assert not list(run.rglob("launcher.pid"))


def test_an_endpoints_model_is_evaluated_without_tokens_and_its_key_is_nowhere(tmp_path: Path) -> None:
    replies = [call("terminal", command="env; ls -a /"), call("finish", message="done")]
    with endpoint_server(EndpointServer(replies, key=KEY)) as server:
        code, output = evaluate(
            tmp_path,
            f"--endpoint={server.base_url}",
            "--model=m",
            "--key-env=THE_KEY",
            "trainer.policy.model.path=",
            "generator.eval_sampling_params.temperature=0.25",
            environment={"THE_KEY": KEY},
        )
    assert code == 0, output
    report = report_of(tmp_path)
    assert report["subject"] == {"endpoint": server.base_url, "model": "m"}
    assert (report["mean_reward"], report["trainable"], report["policy_versions"]) == (0.5, False, [])
    assert report["sampled_tokens"] == 2 * 2 * 10
    assert {body["temperature"] for body in server.seen} == {0.25}
    assert {body["max_tokens"] for body in server.seen} == {16}
    assert len({body["seed"] for body in server.seen}) == 4
    run = tmp_path / "runs" / "mini-eval"
    (one, two) = (Trajectory.read(file) for file in sorted((run / "trajectories/step_0/eval").iterdir()))
    for trajectory in (one, two):
        assert trajectory.record.samples == []
        assert [turn.sampled_ids for turn in trajectory.record.turns] == [[], []]
        assert [turn.parent for turn in trajectory.record.turns] == [None, 0]
        assert trajectory.record.branch_reasons == {}
        assert trajectory.record.messages[-1]["tool_calls"][0]["function"]["name"] == "finish"
    file = min((run / "trajectories/step_0/eval").iterdir())
    for arguments in ([], ["--turn=0"]):
        page = CliRunner().invoke(app, ["trajectories", "show", str(file), *arguments]).output
        assert f"[user] {one.record.messages[1]['content']}" in page
        assert 'terminal({"command": "env; ls -a /"})' in page
    assert KEY not in output
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]


@dataclass
class SilentServer(EndpointServer):
    """Takes calls and answers none of them before `released`."""

    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def chat(self, body: bytes) -> tuple[int, bytes]:
        self.asked.set()
        self.released.wait()
        return 503, b"too late"


def test_a_signal_ends_the_evaluation_of_an_endpoint_that_does_not_answer(tmp_path: Path) -> None:
    config, settings = prepare(tmp_path)
    server = SilentServer([])
    with endpoint_server(server):
        named = [f"--endpoint={server.base_url}", "--model=m", "trainer.policy.model.path="]
        with driver(["eval", str(config), *settings, *named], tmp_path / "state", tmp_path) as running:
            assert server.asked.wait(90), running.output
            footprint = running.footprint()
            running.stop(signal.SIGTERM)
        server.released.set()
    assert running.process.returncode == 128 + signal.SIGTERM
    assert footprint.sandboxes
    assert footprint.remains() == []
    assert not (tmp_path / "runs" / "mini-eval" / "evaluation.json").exists()


@pytest.mark.slow
async def test_a_checkpoint_of_a_service_is_sampled_with_its_own_weights(tmp_path: Path) -> None:
    config, settings = prepare(tmp_path)
    state = tmp_path / "state"
    async with EmbeddedService(tmp_path / "service") as service:
        environment = {"DRYDOCK_SERVICE_TOKEN": service.token.get_secret_value()}
        settings += [f"service.base_url={service.base_url}"]
        steps = ["max_training_steps=1", "ckpt_interval=1", "eval_before_train=false", "eval_after_train=false"]
        training = ["train", str(config), *settings, *(f"trainer.{one}" for one in steps)]
        with driver(training, state, tmp_path, environment) as trained:
            assert await asyncio.to_thread(trained.end) == 0, trained.output
        point = json.loads((tmp_path / "runs/mini/resume/step_1.json").read_text())
        named = f"--checkpoint={point['job_id']}/{point['checkpoint_id']}"
        with driver(["eval", str(config), *settings, named, "--json"], state, tmp_path, environment) as running:
            assert await asyncio.to_thread(running.end) == 0, running.output
    report = report_of(tmp_path)
    assert report["subject"]["checkpoint"] == named.removeprefix("--checkpoint=")
    assert report["policy_versions"] == [3]  # of the warm start; the step had no signal
    assert '"mean_reward": 0.5' in running.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--endpoint=http://127.0.0.1:9/v1"], "belong together"),
        (["--endpoint=http://me:secret@127.0.0.1:9/v1", "--model=m"], "no credentials"),
        (["--checkpoint=job"], "give JOB_ID/CHECKPOINT_ID"),
        (["--checkpoint=job/ckpt"], "give service.base_url"),
        (["--endpoint=http://127.0.0.1:9/v1", "--model=m", "--checkpoint=job/ckpt"], "leave one out"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_made(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    with driver(["eval", "trainer.policy.model.path=m", "data.eval=t", *arguments], tmp_path, tmp_path) as running:
        assert running.end() == 2
    assert said in running.output
    assert "secret" not in running.output
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_key_is_found_before_the_folder_is_made(tmp_path: Path) -> None:
    with endpoint_server(EndpointServer(["hello"], key=KEY)) as server:
        arguments = (f"--endpoint={server.base_url}", "--model=m")
        code, output = evaluate(tmp_path, *arguments, environment={"OPENAI_API_KEY": "sk-another"})
    assert code == 2
    assert "refuses the key (HTTP 401)" in output
    assert "sk-another" not in output
    assert not (tmp_path / "runs").exists()

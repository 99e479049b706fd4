"""`drydock sft` from end to end: what a run leaves behind, and that a killed one goes on as if it had not been."""

import asyncio
import json
import re
import signal
from pathlib import Path

import pytest
from builders.command import drydock
from builders.driver import driver, processes_of

from drydock.client import TrainingClient
from drydock.harness.tool_schemas import tool_schemas
from drydock.recipes.shell_tasks.prepare import DemoData, prepare
from drydock.service.embedded import EmbeddedService

pytestmark = pytest.mark.timeout(180)

RUN = """\
[trainer]
run_name = "tune"
max_training_steps = 24
train_batch_size = 8
eval_before_train = true
eval_interval = 12
ckpt_interval = 4
max_ckpts_to_keep = 2

[trainer.policy.model]
path = "model"

[trainer.policy.optimizer_config]
lr = 3e-3
scheduler = "linear"
num_warmup_steps = 2

[data]
train = ["train.jsonl"]
eval = ["held_out.jsonl"]
max_length = 768

[service]
torch_threads_training = 1
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = prepare(
        tmp_path_factory.mktemp("sft") / "data",
        DemoData(train_tasks=1, held_out_tasks=1, clean_demonstrations=60, sloppy_demonstrations=10),
    )
    tools = tool_schemas(["terminal", "finish"])
    for name, source in (("train", "clean"), ("held_out", "sloppy")):
        lines = (folder / "demonstrations" / f"{source}.jsonl").read_text().splitlines()
        rows = [
            {"messages": [{"role": "system", "content": "Solve it."}, *json.loads(line)["messages"]], "tools": tools}
            for line in lines
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sft.toml").write_text(RUN)
    return folder


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and output of a run that was left to itself."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with driver(["sft", str(data / "sft.toml")], folder / "state", folder, {"CKPT_DIR": str(folder / "run")}) as run:
        code = run.end()
    assert code == 0, run.output
    assert processes_of(folder / "state") == []
    return folder / "run", run.output


def metrics_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def seen_by_the_monitor(run: Path) -> dict:
    return json.loads(drydock("monitor", run, "--json").stdout)


def losses(run: Path) -> list[tuple[int, float, float]]:
    """(step, loss, learning rate)"""
    return [(m["step"], m["train/loss"], m["policy/policy_lr"]) for m in metrics_of(run) if "train/loss" in m]


def test_a_run_leaves_its_folder_as_documented(undisturbed: tuple[Path, str]) -> None:
    run, output = undisturbed
    names = {path.name for path in run.iterdir()}
    expected = {"config.toml", "tune.log", "metrics.jsonl", "loss_graph.svg", "loss_graph.png", "checkpoints", "job_id"}
    assert names == expected | {"resume.json", "service"}
    assert [step for step, _, _ in losses(run)] == list(range(1, 25))
    assert losses(run)[-1][1] < 0.5 * losses(run)[0][1]
    evaluations = {m["step"]: m["eval/loss"] for m in metrics_of(run) if "eval/loss" in m}
    assert list(evaluations) == [0, 12, 24]
    assert evaluations[24] < evaluations[12] < evaluations[0]
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step_20", "step_24"}
    last = run / "checkpoints" / "step_24"
    assert json.loads((last / "trainer_state.json").read_text())["global_steps"] == 24
    assert (last / "model.safetensors").is_file()
    assert output.count("checkpoint of step 24:") == 1, "the last step's resumable checkpoint is the final one too"
    assert json.loads((run / "resume.json").read_text())["step"] == 24
    assert "held-out loss:" in output
    assert str(run / "checkpoints" / "step_24") in output


def test_a_killed_run_goes_on_to_the_same_weights(data: Path, undisturbed: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["sft", str(data / "sft.toml"), f"trainer.ckpt_path={run}", "trainer.resume_mode=latest"]
    with driver(arguments, tmp_path / "state", tmp_path) as killed:
        killed.wait_for("training, from step 9 of 24")
        killed.process.send_signal(signal.SIGKILL)
        killed.end()
    assert "starts at its beginning" in killed.output
    assert seen_by_the_monitor(run)["state"] == "killed"
    with driver(arguments, tmp_path / "state", tmp_path) as stopped:
        stopped.wait_for("training, from step 17 of 24")
        assert stopped.stop(signal.SIGTERM) < 15
    assert "going on after step" in stopped.output
    assert seen_by_the_monitor(run)["state"] == "stopped"
    with driver([*arguments, "data.max_length=700"], tmp_path / "state", tmp_path) as other:
        assert other.end() == 2
    assert "data.max_length was 768, is 700" in other.output
    with driver(arguments, tmp_path / "state", tmp_path) as resumed:
        assert resumed.end() == 0, resumed.output
    assert losses(run) == losses(undisturbed[0])
    told = seen_by_the_monitor(run)
    assert (told["state"], told["step"], told["steps"]) == ("finished", 24, 24)
    assert [(row["step"], row["loss"]) for row in told["last_steps"][-1:]] == [losses(run)[-1][:2]]
    assert [one["step"] for one in told["evaluations"]] == [0, 12, 24]
    final = "checkpoints/step_24/model.safetensors"
    assert (run / final).read_bytes() == (undisturbed[0] / final).read_bytes()
    assert processes_of(tmp_path / "state") == []


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("data.max_length=40", r"train\.jsonl:1: .* tokens, more than data.max_length 40"),
        ("trainer.train_batch_size=999", r"train_batch_size is 999, but data.train holds \d+ conversations; set it to"),
        ("data.tran=x", r"did you mean data\.train\?"),
        ("trainer.eval_intervall=1", r"did you mean trainer\.eval_interval\?"),
        ("data.train=nothing.jsonl", "data.train: cannot read"),
        ("trainer.policy.model.path=nowhere/at/all", "nowhere"),
        ("generator.max_turns=3", "unknown key generator"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_made(
    data: Path, tmp_path: Path, setting: str, problem: str
) -> None:
    arguments = ["sft", str(data / "sft.toml"), f"trainer.ckpt_path={tmp_path / 'run'}", setting]
    with driver(arguments, tmp_path / "state", tmp_path) as refused:
        assert refused.end() == 2, refused.output
    assert re.search(problem, refused.output.replace("\n", " "))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
async def test_an_adapter_is_trained_on_a_service_that_is_running_and_goes_on_there(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with EmbeddedService(tmp_path / "service") as service:
        settings = [
            "policy.model.lora.rank=4",
            "policy.model.lora.merge=true",
            "policy.optimizer_config.scheduler=constant",
        ]
        settings += [f"ckpt_path={run}", "eval_before_train=false", "resume_mode=latest"]
        arguments = ["sft", str(data / "sft.toml"), f"service.base_url={service.base_url}", "data.packing=false"]
        arguments += [f"trainer.{setting}" for setting in settings]
        environment = {"DRYDOCK_SERVICE_TOKEN": service.token.get_secret_value()}
        for steps in (4, 6):
            more = [*arguments, f"trainer.max_training_steps={steps}"]
            with driver(more, tmp_path / "state", tmp_path, environment) as running:
                assert await asyncio.to_thread(running.end) == 0, running.output
        async with TrainingClient(service.base_url, token=service.token) as client:
            assert [job.finished for job in await client.list_jobs()] == [True, True]
    assert "going on after step 4" in running.output
    assert [step for step, _, _ in losses(run)] == [1, 2, 3, 4, 5, 6]
    assert not (run / "service").exists()
    final = {path.name for path in (run / "checkpoints" / "step_6").iterdir()}
    assert "model.safetensors" in final
    assert "adapter_config.json" not in final

"""Every command of the published `cortex-training` command line (its downloads need another database), unmodified."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.cortex_cli import CortexCli, screen_of
from builders.service_api import Api, sampling_config, training_config

from drydock.service.embedded import EmbeddedService

pytest.importorskip("cortex_training")
pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB = "cli"


def with_token(service: EmbeddedService) -> str:
    return service.base_url.replace("http://", f"http://user:{service.token.get_secret_value()}@")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cli(service: EmbeddedService, tmp_path_factory: pytest.TempPathFactory) -> CortexCli:
    return CortexCli(tmp_path_factory.mktemp("cortex"), with_token(service))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cli_job(cli: CortexCli, api: Api, model: str) -> AsyncIterator[str]:
    """A job that the command line has submitted."""
    body = {
        "job_id": "replaced",
        "comment": "from the command line",
        "sub_job_configs": [training_config(model), sampling_config(model)],
    }
    path = cli.file("job.json", body)
    assert (await cli.run("submit", path, "--job-id", JOB, "--dry-run"))["job_id"] == JOB
    running = await cli.run("submit", path, "--job-id", JOB, "--wait")
    assert (running["job_id"], running["status"]) == (JOB, "running")
    yield JOB
    await api.post(f"/{JOB}:cancel")


async def test_login_remembers_the_configuration(cli: CortexCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CORTEX_TRAINING_LOGIN_FILE", str(tmp_path / "login.json"))
    await cli.text("login", str(cli.config))
    out, _ = await cli.text("list")
    assert '"jobs"' in out


async def test_capacity_by_type_and_of_all_types(cli: CortexCli):
    one = await cli.run("capacity", "--hardware", "H200")
    assert one["max_total_gpus"] == 0
    every = await cli.run("capacity")
    assert set(every["capacity_by_hardware"]) == {"H200", "B200", "B300"}


async def test_the_console_script_itself(service: EmbeddedService):
    script = Path(sys.executable).with_name("cortex-training")
    command = [str(script), "--base-url", with_token(service), "--database", "D", "--compact", "list"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('{"jobs":')


async def test_jobs_are_got_listed_and_waited_for(cli: CortexCli, cli_job: str):
    assert (await cli.run("get", cli_job))["comment"] == "from the command line"
    assert cli_job in [job["job_id"] for job in (await cli.run("list", "--status", "running"))["jobs"]]
    assert (await cli.run("wait", cli_job))["status"] == "running"


async def test_training_by_command(cli: CortexCli, cli_job: str, model: str):
    batch = {"payload": {"input_ids": [[5, 6, 7, 8], [9, 10, 11, 12]], "include_attention_mask": True}}
    result = await cli.run("--job", cli_job, "fwd-bwd", cli.file("batch.json", batch))
    assert result["result"]["avg_loss"] > 0
    assert result["payload_size_bytes"] > 0
    texts = {"texts": ["call a tool"], "tokenizer": model, "batch_size": 1, "max_length": 12, "position_ids": True}
    result = await cli.run("--job", cli_job, "fwd-bwd", cli.file("texts.json", texts))
    assert result["result"]["avg_loss"] > 0
    step = await cli.run("--job", cli_job, "step", "--lr", "0.001")
    assert (step["result"]["global_steps"], step["result"]["last_lr"]) == (1, 0.001)


async def test_checkpoints_are_listed_and_loaded(cli: CortexCli, cli_job: str, api: Api):
    await api.result(f"/{cli_job}/save", json={"checkpoint_id": "by-hand"})
    assert [entry["checkpoint_id"] for entry in (await cli.run("checkpoints", cli_job))["checkpoints"]] == ["by-hand"]
    options = ["--source-job-id", cli_job, "--target-sub-job-id", f"{cli_job}:training:0"]
    loaded = await cli.run("--job", cli_job, "load", "by-hand", *options)
    assert loaded["result"]["checkpoint_type"] == "resumable"
    assert "request_id" in await cli.run("--job", cli_job, "load", "by-hand", "--no-poll")


async def test_sampling_and_weight_sync_by_command(cli: CortexCli, cli_job: str):
    spec = {"prompts": [[5, 6, 7], "text"], "sampling_params": {"max_tokens": 3, "ignore_eos": True}, "strict": False}
    answer = await cli.run("--job", cli_job, "generate", cli.file("prompts.json", spec))
    assert answer["prompt_count"] == 2
    assert [len(result["token_ids"]) for result in answer["result"]["results"]] == [3, 3]
    sync = await cli.run("--job", cli_job, "weight-sync", "--weight-format", "vllm")
    assert sync["result"]["targets"].keys() == {f"{cli_job}:sampling:0"}


async def test_the_log_screen_shows_logs(service: EmbeddedService, cli_job: str, tmp_path: Path):
    options = ["tui", cli_job, "--base-url", with_token(service), "--database", "D", "--poll-interval", "0.2"]
    environment = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    screen = await asyncio.to_thread(screen_of, options, "is ready", environment)
    assert f"{cli_job}" in screen
    assert "is ready" in screen


async def test_a_refusal_is_printed_with_its_reason_at_once(cli: CortexCli, cli_job: str):
    wrong = cli.file("wrong.json", {"prompts": [[10**6]]})
    error = await cli.run("--job", cli_job, "generate", wrong, code=1)
    assert "vocabulary" in error


async def test_cancel_by_command(cli: CortexCli, model: str):
    body = {"job_id": "cli-cancel", "sub_job_configs": [sampling_config(model)]}
    submitted = await cli.run("submit", cli.file("other.json", body))
    assert submitted["job_id"] == "cli-cancel"
    assert await cli.run("cancel", "cli-cancel") == {"cancelled": True, "job_id": "cli-cancel"}
    assert (await cli.run("cancel", "cli-cancel"))["cancelled"] is True
    assert (await cli.run("get", "cli-cancel"))["status"] == "cancelled"

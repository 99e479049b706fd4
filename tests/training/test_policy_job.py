"""The run's job: made once, cancelled whatever happens, and its sampler's version checked."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drydock.client import TrainingClient
from drydock.errors import JobFailed, ServiceUnavailable
from drydock.training.config import RunConfig
from drydock.training.config_file import load_run_config
from drydock.training.policy_job import job_request, policy_job


class RecordingClient:
    """The calls of a training client that a job's owner makes; `answers` holds back the creation's answer."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = asyncio.Event()
        self.cancelled: list[str] = []
        self.reasons: list[str | None] = []
        self.confirmed_version: int | None = 0
        self.steps = 0
        self.cancel_fails = False

    async def create_job(self, body: Any) -> Any:
        self.asked.set()
        await self.answers.wait()
        return SimpleNamespace(job_id="j1")

    async def wait_for_job(self, job_id: str, deadline_s: float) -> Any:
        parts = [SimpleNamespace(job_type=kind, sub_job_id=f"{kind}-0") for kind in ("training", "sampling")]
        return SimpleNamespace(job_id=job_id, sub_jobs=parts)

    async def cancel_job(self, job_id: str, reason: str | None = None) -> None:
        self.reasons.append(reason)
        if self.cancel_fails:
            raise ServiceUnavailable("cancel job: no connection")
        self.cancelled.append(job_id)

    async def step(self, job_id: str, learning_rate: float, *, deadline_s: float) -> Any:
        self.steps += 1
        return SimpleNamespace(global_steps=self.steps, metrics={})

    async def weight_sync(self, job_id: str, source: str, targets: list[str], *, deadline_s: float) -> Any:
        return SimpleNamespace(policy_version=self.confirmed_version, fingerprint="f")


@pytest.fixture
def config() -> RunConfig:
    return load_run_config(None, ["data.train=t", "trainer.policy.model.path=some/model", "trainer.run_name=me"])


@pytest.fixture
async def client() -> RecordingClient:
    return RecordingClient()


def owned(client: RecordingClient, config: RunConfig, folder: Path) -> Any:
    return policy_job(cast("TrainingClient", client), config, folder / "job_id", lambda _: None)


async def test_the_job_is_named_in_its_file_and_cancelled_at_the_end(
    client: RecordingClient, config: RunConfig, tmp_path: Path
) -> None:
    async with owned(client, config, tmp_path) as job:
        assert (job.job_id, job.training_sub_job, job.sampling_sub_job) == ("j1", "training-0", "sampling-0")
        assert (tmp_path / "job_id").read_text() == "j1\n"
        assert client.cancelled == []
    assert client.cancelled == ["j1"]
    assert client.reasons == ["finished: its run is at its end"]


async def test_a_failure_of_the_run_wins_over_one_of_cancelling(
    client: RecordingClient, config: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client.cancel_fails = True
    with pytest.raises(ZeroDivisionError):
        async with owned(client, config, tmp_path):
            raise ZeroDivisionError


async def test_a_job_that_was_being_made_when_the_run_was_stopped_is_cancelled(
    client: RecordingClient, config: RunConfig, tmp_path: Path
) -> None:
    client.answers.clear()

    async def run() -> None:
        async with owned(client, config, tmp_path):
            raise AssertionError("the run went on")

    running = asyncio.create_task(run())
    await client.asked.wait()
    running.cancel()
    await asyncio.sleep(0)
    client.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert client.cancelled == ["j1"]
    assert client.reasons == [None]


async def test_a_sampler_with_other_weights_stops_the_run(
    client: RecordingClient, config: RunConfig, tmp_path: Path
) -> None:
    async with owned(client, config, tmp_path) as job:
        await job.step(1e-3)
        client.confirmed_version = 1
        assert await job.sync() == "f"
        await job.step(1e-3)
        with pytest.raises(JobFailed, match="confirms policy version 1, expected 2"):
            await job.sync()
        client.confirmed_version = None  # a service that does not say
        await job.sync()


def test_the_request_names_the_run_and_both_sub_jobs(config: RunConfig) -> None:
    body = job_request(config, comment="me").model_dump(exclude_unset=True)
    assert (body["comment"], body["experiment_name"]) == ("me", "me")
    assert [part["job_type"] for part in body["sub_job_configs"]] == ["training", "sampling"]
    assert {part["model_name"] for part in body["sub_job_configs"]} == {"some/model"}

"""The small job: whole on a real service, cancelled after it; and every way in which it can find something wrong."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from builders.service_api import Api, sft_batch
from builders.training_server import TrainingServer

from drydock.client import TrainingClient
from drydock.finding import Finding, Level
from drydock.service.embedded import EmbeddedService
from drydock.training.config import RunConfig
from drydock.training.config_file import load_run_config
from drydock.training.policy_job import policy_job
from drydock.training.preflight.live_job import check_agreement, check_live_job, sample

PROMPT = [5, 6, 7, 8]
TURN = {"text": "x", "token_ids": [1, 2], "logprobs": [-1.0, -2.0], "finish_reason": "length", "policy_version": 0}
pytestmark = pytest.mark.asyncio(loop_scope="session")


def run_config(model: Path | str) -> RunConfig:
    return load_run_config(
        None,
        [
            "data.train=t",
            f"trainer.policy.model.path={model}",
            "trainer.run_name=me",
            "trainer.policy.optimizer_config.lr=1e-3",
            "generator.max_input_length=256",
            "service.torch_threads_training=1",
            "service.torch_threads_sampling=1",
        ],
    )


def levels(found: list[Finding]) -> dict[str, Level]:
    return {finding.name: finding.level for finding in found}


@pytest_asyncio.fixture(loop_scope="session")
async def client(service: EmbeddedService) -> AsyncIterator[TrainingClient]:
    async with TrainingClient(service.base_url, token=service.token) as opened:
        yield opened


async def test_a_job_samples_agrees_steps_and_is_cancelled(
    client: TrainingClient, service: EmbeddedService, tiny_model: Path
) -> None:
    found = await check_live_job(client, run_config(tiny_model), PROMPT)
    assert levels(found) == dict.fromkeys(("job", "sampler", "log-probs", "step"), Level.PASS)
    assert "policy version 1" in found[-1].detail
    async with Api.of(service) as api:
        jobs = [job for job in (await api.get(""))["jobs"] if job["comment"] == "me.doctor"]
    assert [job["status"] for job in jobs] == ["cancelled"]


async def test_a_trainer_that_moved_away_from_its_sampler_warns_and_then_fails(
    client: TrainingClient, tiny_model: Path, tmp_path: Path
) -> None:
    seen: list[Level] = []
    rows = sft_batch(np.random.default_rng(0).integers(5, 200, (2, 16)))
    async with policy_job(client, run_config(tiny_model), tmp_path / "job_id", lambda _: None) as job:
        turn = await sample(job, PROMPT)
        for number in range(60):
            (finding,) = await check_agreement(job, PROMPT, turn)
            seen.append(finding.level)
            if finding.level is Level.FAIL:
                break
            await job.forward_backward(rows)
            await job.step(2e-5 * 1.2**number)
    assert list(dict.fromkeys(seen)) == [Level.PASS, Level.WARN, Level.FAIL]


async def test_a_job_that_fails_names_its_reason(client: TrainingClient, tmp_path: Path) -> None:
    found = await check_live_job(client, run_config(tmp_path), PROMPT)
    assert levels(found) == {"job": Level.FAIL}
    assert "config.json" in found[0].detail


@pytest.mark.parametrize(
    ("results", "name", "level", "said"),
    [
        ({"generate": "the sampler is gone"}, "sampler", Level.FAIL, "the sampler is gone"),
        (
            {"generate": {"results": [{**TURN, "token_ids": [], "logprobs": []}]}},
            "sampler",
            Level.FAIL,
            "without a token",
        ),
        ({"forward-backward": "out of memory"}, "log-probs", Level.FAIL, "out of memory"),
        ({"forward-backward": {"avg_loss": 0.1}}, "log-probs", Level.WARN, "cannot be compared"),
        ({"step": "nan"}, "step", Level.FAIL, "nan"),
        ({"weight-sync": {"policy_version": 9}}, "step", Level.FAIL, "policy version 9, expected 1"),
        ({}, "step", Level.FAIL, "policy version 0, expected 1"),
    ],
)
async def test_each_part_fails_by_its_name_and_the_job_is_cancelled(
    results: dict, name: str, level: Level, said: str
) -> None:
    scores = [[-9.0, -9.0, -9.0, -1.0, -2.0, 0.0]]
    good = {
        "generate": {"results": [TURN]},
        "forward-backward": {"avg_loss": 0.1, "metrics": {}, "post_process_outputs": {"logprobs": scores}},
        "step": {"global_steps": 1},
        "weight-sync": {"policy_version": 1},
    }
    parts = [{"job_type": kind, "sub_job_id": f"j:{kind}:0", "status": "running"} for kind in ("training", "sampling")]
    with TrainingServer().serving() as server:
        server.create_answer = (200, {"job_id": "j"})
        server.jobs = {"j": [{"job_id": "j", "status": "running", "sub_jobs": parts}]}
        server.results = {**good, **results}
        async with TrainingClient(server.url) as client:
            found = await check_live_job(client, run_config("some/model"), PROMPT)
        assert server.paths()[-1] == "POST /j:cancel"
    (finding,) = [one for one in found if one.name == name]
    assert (finding.level, said in finding.detail) == (level, True), found
    assert finding.remedy

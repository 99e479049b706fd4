"""What the client's callers notice of an API process that is killed and started again: a pause."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from builders.restartable_service import RestartableService
from builders.service_api import sampling_config
from builders.tiny_model import build_tiny_model

from drydock.client import TrainingClient
from drydock.wire import JobCreate, JobStatus, SamplingParams

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

JOB = "lasting"
LONG = SamplingParams(max_tokens=1200, ignore_eos=True, temperature=0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def restartable(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RestartableService]:
    folder = tmp_path_factory.mktemp("restart")
    model = str(build_tiny_model(folder / "model"))
    async with RestartableService(folder / "state", pool={"CPU": 2}) as service, service.client() as client:
        await client.create_job(job_of(model, JOB))
        await client.wait_for_job(JOB, 60)
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def client(restartable: RestartableService) -> AsyncIterator[TrainingClient]:
    async with restartable.client() as made:
        yield made


def job_of(model: str, job_id: str) -> JobCreate:
    return JobCreate.model_validate({"job_id": job_id, "sub_job_configs": [sampling_config(model)]})


async def test_sampling_goes_on_whole_or_as_a_stream(restartable: RestartableService, client: TrainingClient):
    prompts = [[5, 6, 7 + index] for index in range(6)]
    expected = await client.generate(JOB, prompts, LONG, deadline_s=90)
    rng = random.Random(5)

    async def streamed() -> dict[int, list[int]]:
        stream = client.generate_stream(JOB, prompts, LONG, deadline_s=90)
        return {index: generation.token_ids async for index, generation in stream}

    async with asyncio.TaskGroup() as tasks:
        whole = tasks.create_task(client.generate(JOB, prompts, LONG, deadline_s=90))
        stream = tasks.create_task(streamed())
        for _ in range(2):
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            await restartable.restart()
    token_ids = [generation.token_ids for generation in expected]
    assert [generation.token_ids for generation in whole.result()] == token_ids
    assert stream.result() == dict(enumerate(token_ids))


async def test_a_followed_log_and_a_waited_for_job_go_on(restartable: RestartableService, client: TrainingClient):
    model = (await client.get_job(JOB)).sub_jobs[0].model_name
    assert model

    async def followed() -> list[dict]:
        return [entry async for entry in client.stream_logs("second", deadline_s=60)]

    created = await client.create_job(job_of(model, "second"))
    assert created.status is not JobStatus.RUNNING
    async with asyncio.TaskGroup() as tasks:
        log = tasks.create_task(followed())
        waiting = tasks.create_task(client.wait_for_job("second", 60))
        await asyncio.sleep(0.3)
        await restartable.restart()
        assert (await waiting).status is JobStatus.RUNNING
        await restartable.restart()
        await client.generate("second", [[5]], SamplingParams(max_tokens=1), deadline_s=30)
        await client.cancel_job("second")
    whole = [entry async for entry in client.stream_logs("second", follow=False)]
    assert log.result() == whole

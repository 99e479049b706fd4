"""Samplers that die: what a new one holds, and who samples meanwhile."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from builders.restartable_service import RestartableService
from builders.service_api import Api, sampling_config, sft_batch, training_config

from drydock.client import Refused, TrainingClient
from drydock.service.generation import replica
from drydock.service.worker_group import WorkerGroup
from drydock.service.worker_spec import WorkerLimits, WorkerSpec
from drydock.wire.rest import JobCreate, SamplingParams

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

PEFT = {"peft_type": "Lora", "r": 4, "lora_alpha": 16, "target_modules": "all-linear"}
ROWS = np.random.default_rng(3).integers(5, 200, (3, 24))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def restartable(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RestartableService]:
    async with RestartableService(tmp_path_factory.mktemp("samplers") / "state") as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(restartable: RestartableService) -> AsyncIterator[TrainingClient]:
    async with restartable.client() as made:
        yield made


async def start(client: TrainingClient, job_id: str, configs: Sequence[dict[str, Any]]) -> None:
    await client.create_job(JobCreate.model_validate({"job_id": job_id, "sub_job_configs": list(configs)}))
    await client.wait_for_job(job_id, 60)


async def running(client: TrainingClient, job_id: str) -> bool:
    return all(sub.status == "running" for sub in (await client.get_job(job_id)).sub_jobs)


async def lose_sampler(restartable: RestartableService, client: TrainingClient, job_id: str) -> None:
    """Kills it; returns when another has taken its place."""
    os.kill(restartable.worker_of(job_id, "sampling"), signal.SIGKILL)
    for wanted in (False, True):
        async with asyncio.timeout(60):
            while await running(client, job_id) is not wanted:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_restarted_sampler_holds_the_adapters_that_were_loaded(
    restartable: RestartableService, client: TrainingClient, model: str
):
    job = "adapters"
    retention = {"keep_last": 1}
    trainer = training_config(model, peft_config=PEFT, checkpoint_retention=retention, optimizer={"lr": 0.05})
    await start(client, job, [trainer, sampling_config(model, on_worker_loss="restart")])

    async def step() -> None:
        await client.forward_backward(job, sft_batch(ROWS), 60)
        await client.step(job, None, 60)

    async def sample(adapter: str | None) -> tuple[list[int], list[float]]:
        params = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True, logprobs=0, adapter=adapter)
        (result,) = await client.generate(job, [ROWS[0, :8].tolist()], params, deadline_s=60)
        return list(result.token_ids), list(result.logprobs or ())

    async def sync(weight_format: Any) -> None:
        await client.weight_sync(job, f"{job}:training:0", [f"{job}:sampling:0"], 60, weight_format=weight_format)

    await step()
    await client.save(job, checkpoint_id="first", checkpoint_type="weights-only", deadline_s=60)
    mark = await client.load_adapter(job, "v1", "first")
    with pytest.raises(Refused, match="no checkpoint 'nothing'"):
        await client.load_adapter(job, "v2", "nothing")
    base, first = await sample(None), await sample("v1")
    assert first != base
    for number in range(3):
        await step()
        await client.save(job, checkpoint_id=f"later-{number}", deadline_s=60)
    assert {found.checkpoint_id for found in await client.list_checkpoints(job)} == {"first", "later-2"}
    with pytest.raises(Refused, match="drop it there first"):
        await client.delete_checkpoint(job, "first")

    await restartable.restart()
    await lose_sampler(restartable, client, job)
    assert await client.list_adapters(job) == {"v1": mark}
    assert (await sample("v1"), await sample(None)) == (first, base)

    await sync("hf")
    assert await client.list_adapters(job) == {}
    merged = await sample(None)
    await lose_sampler(restartable, client, job)
    assert await client.list_adapters(job) == {}
    assert await sample(None) == merged
    await client.delete_checkpoint(job, "first")

    await sync("lora")
    synced = await sample(None)
    assert synced[0] == merged[0]
    assert await sample("base") == base
    for name in ("late", "dropped"):
        await client.load_adapter(job, name, "later-2")
    await client.drop_adapter(job, "dropped")
    await lose_sampler(restartable, client, job)
    assert (await client.list_adapters(job)).keys() == {"late"}
    assert await sample("late") == await sample(None) == synced
    await client.cancel_job(job)


def groups(count: int, tmp_path: Path) -> list[WorkerGroup]:
    """Groups of samplers without a process."""
    limits = WorkerLimits(tmp_path, 1.0, 1.0, None)
    return [WorkerGroup(WorkerSpec(f"j:sampling:{n}", "sampling", {}, tmp_path, 1), limits) for n in range(count)]


async def test_a_key_has_its_replica_and_strict_waits_for_it(tmp_path: Path):
    workers = groups(3, tmp_path)
    for worker in workers:
        worker.open()
    keys = [f"rollout-{number}" for number in range(60)]
    homes = {key: replica(workers, key, {}) for key in keys}
    assert {worker.spec.sub_job_id for worker in homes.values()} == {w.spec.sub_job_id for w in workers}
    assert all(replica(workers, key, {homes[key]: list(range(9))}) is homes[key] for key in keys), "whatever its load"
    assert replica(workers, None, {workers[0]: [0], workers[1]: [1]}) is workers[2]
    again = groups(1, tmp_path)[0]
    for key in keys:
        place = workers.index(homes[key])
        restarting = [*workers[:place], again, *workers[place + 1 :]]
        assert replica(restarting, key, {}, strict=True) is again
        assert replica(restarting, key, {}) is not again
        assert replica(restarting, None, {worker: [0] for worker in workers}) is not again
    assert replica([again], "key", {}) is again, "with nobody else there, it is waited for"


async def test_turns_of_a_key_meet_their_prefix_cache_and_others_sample_while_a_replica_is_away(
    restartable: RestartableService, client: TrainingClient, model: str, tmp_path: Path
):
    job = "replicas"
    await start(client, job, [sampling_config(model, on_worker_loss="restart")] * 2)
    opened = groups(2, tmp_path)
    for group in opened:
        group.open()
    places = {key: opened.index(replica(opened, key, {})) for key in map("turn-{}".format, range(6))}
    first = next(key for key, place in places.items() if place == 0)
    other = next(key for key, place in places.items() if place == 1)
    api = Api(restartable.base_url, restartable.token)

    async def cached(prompt: list[int], key: str, **fields: Any) -> int:
        params = {"max_tokens": 2, "temperature": 0.0, "ignore_eos": True}
        body = {"prompts": [prompt], "sampling_params": params, "routing_key": key, **fields}
        return (await api.result(f"/{job}/generate", json=body))["results"][0]["cached_tokens"]

    prompts = {key: np.random.default_rng(number).integers(5, 200, 200).tolist() for number, key in enumerate(places)}
    assert [await cached(prompts[key], key, strict=number % 2 == 0) for number, key in enumerate(places)] == [0] * 6
    for number, key in enumerate(places):
        assert await cached(prompts[key], key, strict=number % 2 == 0) > 150, "its own replica holds it"
    assert await cached(prompts[first], other) == 0

    os.kill(restartable.worker_of(job, "sampling"), signal.SIGKILL)
    async with asyncio.timeout(10):
        while await running(client, job):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    strict = asyncio.create_task(cached(prompts[first], first, strict=True))
    assert await cached(prompts[first], first) > 150, "the other replica has just seen it"
    assert not await running(client, job), "nobody waited for the new one"
    assert await asyncio.wait_for(strict, 60) == 0
    assert await running(client, job)
    await client.cancel_job(job)
    await api.http.aclose()

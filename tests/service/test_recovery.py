"""Processes of the service killed at seeded random points of a running loop: nothing is done twice or lost silently."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from builders.restartable_service import RestartableService, is_alive
from builders.service_api import Api, sampling_config, training_config
from builders.training_run import TrainingRun, batch_of, job_of

from drydock.client import TrainingClient
from drydock.errors import RequestFailed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

RECOVERY_S = 10.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def restartable(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RestartableService]:
    async with RestartableService(tmp_path_factory.mktemp("recovery") / "state") as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(restartable: RestartableService) -> AsyncIterator[TrainingClient]:
    async with restartable.client() as made:
        yield made


async def start(client: TrainingClient, model: str, job_id: str, on_worker_loss: str) -> None:
    await client.create_job(job_of(model, job_id, on_worker_loss))
    await client.wait_for_job(job_id, 60)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(client: TrainingClient, model: str) -> str:
    """Fingerprint of the weights that a run without any death ends with."""
    await start(client, model, "undisturbed", "fail")
    report = await TrainingRun(client, "undisturbed").run()
    assert report.steps == [1, 2, 3, 4, 5]
    await client.cancel_job("undisturbed")
    return report.fingerprint


async def test_a_killed_api_process_loses_no_step_and_no_result(
    restartable: RestartableService, client: TrainingClient, model: str, undisturbed: str
):
    await start(client, model, "api", "fail")
    workers = restartable.workers()
    assert len(workers) == 2
    rng = random.Random(7)
    api = Api(restartable.base_url, restartable.token)
    run = TrainingRun(client, "api", api=api)
    running = asyncio.create_task(run.run())
    for _ in range(4):
        await asyncio.sleep(rng.uniform(0.1, 0.6))
        assert await restartable.restart() < RECOVERY_S
        assert restartable.workers() == workers
        job = await client.get_job("api")
        assert job.status == "running"
        assert {sub.status for sub in job.sub_jobs} == {"running"}
    report = await running
    assert report.fingerprint == undisturbed
    assert report.rewinds == []
    assert report.steps == [1, 2, 3, 4, 5]
    assert await run.check_answers(api) > 0
    await client.cancel_job("api")
    await api.http.aclose()
    assert not restartable.processes()


@pytest.mark.parametrize("kind", ["training", "sampling"])
async def test_a_killed_worker_is_started_again_and_names_what_was_lost(
    restartable: RestartableService, client: TrainingClient, model: str, undisturbed: str, kind: str
):
    job_id = f"lost-{kind}"
    await start(client, model, job_id, "restart")
    rng = random.Random(3)
    running = asyncio.create_task(TrainingRun(client, job_id).run())
    for _ in range(2):
        await asyncio.sleep(rng.uniform(0.1, 1.0))
        killed = restartable.worker_of(job_id, kind)
        os.kill(killed, signal.SIGKILL)
        await restartable.replacement(job_id, kind, killed)
        await client.wait_for_job(job_id, RECOVERY_S)
        await until_sub_jobs_run(client, job_id)
    report = await asyncio.wait_for(running, 60)
    assert report.fingerprint == undisturbed
    assert sorted(set(report.steps)) == [1, 2, 3, 4, 5]
    if kind == "sampling":
        assert report.rewinds == []
    else:
        assert len(report.rewinds) in (1, 2)
    await client.cancel_job(job_id)


async def until_sub_jobs_run(client: TrainingClient, job_id: str, all_run: bool = True) -> None:
    """Waits until all sub-jobs run, or (`all_run` false) until the service has noticed that one does not."""
    async with asyncio.timeout(60):
        while all_run != all(sub.status == "running" for sub in (await client.get_job(job_id)).sub_jobs):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_steps_lost_between_calls_are_named_by_the_next_call_exactly_once(
    restartable: RestartableService, client: TrainingClient, model: str
):
    await client.create_job(job_of(model, "named", "restart"))
    await client.wait_for_job("named", 60)
    for number in range(3):
        await client.forward_backward("named", batch_of(number, 0), 60)
        await client.step("named", 0.01, 60)
        if number == 0:
            await client.save("named", checkpoint_id="first", deadline_s=60)
    await client.forward_backward("named", batch_of(9, 0), 60)
    os.kill(restartable.worker_of("named", "training"), signal.SIGKILL)
    await until_sub_jobs_run(client, "named", False)
    assert (await client.get_job("named")).status == "running"
    await restartable.restart()
    with pytest.raises(RequestFailed) as told:
        await client.step("named", 0.01, 60)
    assert told.value.error_type == "TrainingRewound"
    expected = "restarted from checkpoint first at step 1; steps 2..3 and 1 accumulated forward-backward call are lost"
    assert expected in str(told.value)
    await client.forward_backward("named", batch_of(1, 0), 60)
    assert (await client.step("named", 0.01, 60)).global_steps == 2
    await client.save("named", deadline_s=60)
    os.kill(restartable.worker_of("named", "training"), signal.SIGKILL)
    await until_sub_jobs_run(client, "named", False)
    await client.forward_backward("named", batch_of(2, 0), 60)
    assert (await client.step("named", 0.01, 60)).global_steps == 3
    await client.cancel_job("named")


async def test_the_default_is_that_a_job_fails_with_its_worker(
    restartable: RestartableService, client: TrainingClient, model: str
):
    api = Api(restartable.base_url, restartable.token)
    await client.create_job(job_of(model, "fails"))
    await client.wait_for_job("fails", 60)
    os.kill(restartable.worker_of("fails", "training"), signal.SIGKILL)
    job = await api.wait_for_job("fails", "failed")
    assert "fails:training:0" in job["reason"]
    assert "was killed by SIGKILL" in job["reason"]
    assert not restartable.processes()
    await api.http.aclose()


async def test_a_job_that_was_starting_starts_again_and_lost_workers_are_found_out(
    restartable: RestartableService, client: TrainingClient, model: str
):
    api = Api(restartable.base_url, restartable.token)
    await start(client, model, "gone", "fail")
    gone = restartable.workers()
    await api.post("", json={"job_id": "starting", "sub_job_configs": [sampling_config(model)]})
    await api.wait_for_job("starting", "initializing")
    await asyncio.sleep(0.2)
    before = restartable.workers()
    await restartable.kill()
    for pid in gone:
        os.kill(pid, signal.SIGKILL)
    await restartable.start()
    job = await api.wait_for_job("gone", "failed")
    assert "restarted" in job["reason"]
    assert "gone" in job["reason"]
    await api.wait_for_job("starting")
    assert not any(is_alive(pid) for pid in before)
    await api.post("/starting:cancel")
    assert not restartable.processes()
    await api.http.aclose()


async def test_workers_end_by_themselves_when_no_service_comes_back(tmp_path: Path, model: str):
    service = RestartableService(tmp_path / "state", outlive_api_s=1.0)
    async with service:
        api = Api(service.base_url, service.token)
        await api.post("", json={"job_id": "j", "sub_job_configs": [sampling_config(model)]})
        await api.wait_for_job("j")
        folder = service.run_dir
        assert folder.stat().st_mode & 0o777 == 0o700
        [path] = folder.glob("*.sock")
        assert path.stat().st_mode & 0o777 == 0o600
        [pid] = service.workers()
        await service.kill()
        await asyncio.sleep(0.4)
        assert is_alive(pid)
        async with asyncio.timeout(5):
            while is_alive(pid):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not list(folder.glob("*.sock"))
        await api.http.aclose()


async def test_silent_and_big_workers_are_killed_by_name(tmp_path: Path, model: str):
    async with RestartableService(tmp_path / "silent", heartbeat_timeout_s=3.0) as service:
        api = Api(service.base_url, service.token)
        await api.post("", json={"job_id": "silent", "sub_job_configs": [sampling_config(model)]})
        await api.wait_for_job("silent")
        [pid] = service.workers()
        os.kill(pid, signal.SIGSTOP)
        job = await api.wait_for_job("silent", "failed")
        assert "it said nothing for 3 s (heartbeat_timeout_s)" in job["reason"]
        await api.http.aclose()
    async with RestartableService(tmp_path / "big", worker_memory_mb=64) as service:
        api = Api(service.base_url, service.token)
        await api.post("", json={"job_id": "big", "sub_job_configs": [training_config(model)]})
        job = await api.wait_for_job("big", "failed")
        assert "MB of memory, more than worker_memory_mb = 64" in job["reason"]
        await api.http.aclose()

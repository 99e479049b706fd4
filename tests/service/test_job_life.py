"""Jobs and their room: who waits, who is placed, and what ends a job by itself."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from builders.service_api import sampling_config, training_config

from drydock.service import schema as tables
from drydock.service.jobs import Jobs
from drydock.service.pool import Pool
from drydock.service.problems import Refusal
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.result_files import ResultFiles
from drydock.service.run_dir import run_dir, worker_pids
from drydock.service.settings import ServiceSettings
from drydock.service.store import Store
from drydock.wire.rest import JobCreate
from drydock.wire.status import RequestStatus


@pytest_asyncio.fixture
async def pool() -> Pool:
    return Pool({"CPU": 2})


@pytest_asyncio.fixture
async def jobs(tmp_path: Path, pool: Pool) -> AsyncIterator[Jobs]:
    settings = ServiceSettings(state_dir=tmp_path, outlive_api_s=0)
    store = await Store.open(tmp_path / "jobs.sqlite")
    table = RequestTable(store, ResultFiles(tmp_path / "results", 1 << 20))
    made = Jobs(store, table, settings, pool, check_s=0.05)
    yield made
    await made.close()
    await table.close()
    await store.close()
    assert not worker_pids(run_dir(tmp_path))


async def create(jobs: Jobs, model: str, job_id: str, slots: int = 1, **fields: object) -> dict:
    body = {"job_id": job_id, "sub_job_configs": [sampling_config(model, n_gpus=slots)], **fields}
    return await jobs.create(JobCreate.model_validate(body), body, "ada", "user")


async def until(condition: Callable[[], bool], limit_s: float = 90) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


async def status(jobs: Jobs, job_id: str) -> tuple[str, str | None]:
    view = await jobs.view(job_id)
    return view["status"], view["reason"]


@pytest.mark.timeout(240)
async def test_jobs_wait_in_order_for_room_and_give_it_back(jobs: Jobs, pool: Pool, model: str):
    first = await create(jobs, model, "first", 2, idle_timeout_seconds=300, name="night run")
    assert first["status"] == "pending"
    await until(lambda: jobs._live["first"].status == "running")
    assert jobs.placed() == [("first", "first:sampling:0", "CPU", 2)]
    for name, slots in (("second", 2), ("third", 1), ("fourth", 1)):
        await create(jobs, model, name, slots, pending_timeout_seconds=300)
    await asyncio.sleep(0.2)
    assert [(await status(jobs, name))[0] for name in ("second", "third", "fourth")] == ["pending"] * 3
    assert [pool.position(name) for name in ("second", "third", "fourth")] == [1, 2, 3]
    assert (await jobs.view("third"))["queue_position"] == 2
    assert len(worker_pids(run_dir(jobs._state_dir))) == 1

    jobs._live["fourth"].created_at -= 301
    await asyncio.wait_for(jobs._live["fourth"].finished.wait(), 2)
    assert await status(jobs, "fourth") == ("failed", "pending_timeout: not running after 300 s")

    began = time.monotonic()
    await jobs.cancel("second")
    assert time.monotonic() - began < 2
    assert pool.position("third") == 1

    [named] = await jobs.views(set(), name="night run", owner="ada")
    assert named["job_id"] == "first"
    assert await jobs.views(set(), owner="bob") == []

    jobs._live["first"].last_used -= 301
    await asyncio.wait_for(jobs._live["first"].finished.wait(), 5)
    assert await status(jobs, "first") == ("terminated", "idle_timeout: no call for 300 s")
    await until(lambda: jobs._live["third"].status in ("placing", "initializing"), 5)
    assert pool.counts("CPU").in_use == 1
    began = time.monotonic()
    await jobs.cancel("third")
    assert time.monotonic() - began < 2
    assert pool.counts("CPU").in_use == 0
    assert jobs.placed() == []


async def test_what_can_never_be_placed_or_is_misspelt_is_refused(jobs: Jobs, model: str):
    with pytest.raises(Refusal, match="n_gpus: 3"):
        await create(jobs, model, "big", 3)
    with pytest.raises(Refusal, match="hardware: 'H200'"):
        await create(jobs, model, "else", hardware="H200")
    body = {"sub_job_configs": [sampling_config(model, on_worker_loss="retry")]}
    with pytest.raises(Refusal, match=r"sub_job_configs\.0: on_worker_loss 'retry' is none of fail, restart"):
        await jobs.create(JobCreate.model_validate(body), body)


@pytest.mark.parametrize(("asked", "told_by_a_request"), [("training", True), ("log_probability", False)])
async def test_steps_that_went_with_a_trainer_between_two_services_are_told_to_somebody(
    jobs: Jobs, model: str, asked: str, told_by_a_request: bool
):
    """A forward that a log-probability sub-job answers says nothing of the trainer: the next step must."""
    trainer = training_config(model)
    trainer["training_config"]["on_worker_loss"] = "restart"
    body = {"job_id": "j", "sub_job_configs": [trainer]}
    at = {"created_at": 1.0, "updated_at": 1.0}
    sub_job = {"sub_job_id": "j:training:0", "job_id": "j", "position": 0, "job_type": "training", "config": trainer}
    await jobs._store.put(tables.jobs, [{"job_id": "j", "status": "running", "body": body, "hardware": "CPU", **at}])
    await jobs._store.put(tables.sub_jobs, [{**sub_job, "status": "running"}])
    step = RequestRecord("s", "j", "step", 1.0, 1.0, RequestStatus.COMPLETED, outcome=Outcome({"global_steps": 1}))
    await jobs._store.put(tables.requests, [step.row()])
    in_flight = RequestRecord("f", "j", "forward", 1.0, 1.0, arguments={"sub_job_id": f"j:{asked}:0"}).row()
    [job] = await jobs.recover({"j": [in_flight]})
    assert "step 1 is lost" in (job.workers["j:training:0"].predecessor_loss or "")
    assert (job.rewound is None) == told_by_a_request


async def test_a_job_whose_hardware_is_gone_after_a_restart_fails_by_name(jobs: Jobs, model: str):
    body = {"job_id": "j", "sub_job_configs": [sampling_config(model)]}
    at = {"created_at": 1.0, "updated_at": 1.0}
    await jobs._store.put(tables.jobs, [{"job_id": "j", "status": "pending", "body": body, "hardware": "H200", **at}])
    [job] = await jobs.recover({})
    jobs.supervise(job)
    await asyncio.wait_for(job.finished.wait(), 5)
    reason = (await status(jobs, "j"))[1]
    assert reason is not None
    assert reason.startswith("hardware: 'H200' is not in this pool")

"""A service that is not there, turns the caller away, is full, or has a job of this run already; none shows a token."""

import asyncio
from pathlib import Path

import pytest
from builders.service_api import Api, sampling_config, training_config
from builders.training_server import TrainingServer

from drydock.client import TrainingClient
from drydock.finding import Finding, Level
from drydock.service.embedded import EmbeddedService
from drydock.service.identity import Role
from drydock.service.settings import DATABASE
from drydock.service.store import Store
from drydock.service.tokens import create_token
from drydock.training.preflight.service import (
    Wanted,
    capacity_finding,
    check_own_service,
    check_service,
    live_jobs,
)
from drydock.wire.rest import Capacity, Job

ONE_TRAINER_ONE_SAMPLER = Wanted(2, "me")
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def ask(url: str, token: str | None, wanted: Wanted | None = ONE_TRAINER_ONE_SAMPLER) -> dict[str, Finding]:
    async with TrainingClient(url, token=token) as client:
        found = await check_service(client, url, has_token=token is not None, wanted=wanted)
    assert token is None or token not in str(found)
    return {finding.name: finding for finding in found}


async def test_an_idle_service_passes(service: EmbeddedService) -> None:
    found = await ask(service.base_url, service.token.get_secret_value())
    assert {name: finding.level for name, finding in found.items()} == dict.fromkeys(
        ("reachable", "credentials", "capacity", "jobs"), Level.PASS
    )
    assert "(admin)" in found["credentials"].detail
    assert found["capacity"].detail == "2 CPU free, 2 wanted"


async def test_a_service_too_small_fails_and_a_full_one_with_a_job_of_this_run_warns(
    service: EmbeddedService, tiny_model: Path
) -> None:
    token = service.token.get_secret_value()
    small = await ask(service.base_url, token, Wanted(3, None))
    assert small["capacity"].level is Level.FAIL
    assert "service.n_gpus_training + service.n_gpus_sampling = 3" in small["capacity"].detail
    async with Api.of(service) as api:
        configs = [training_config(str(tiny_model)), sampling_config(str(tiny_model))]
        job = await api.post("", json={"comment": "me", "sub_job_configs": configs})
        try:
            found = await ask(service.base_url, token)
            assert found["capacity"].level is Level.WARN
            assert "it will queue" in found["capacity"].detail
            assert found["jobs"].level is Level.WARN
            assert job["job_id"] in found["jobs"].detail
            assert "drydock jobs cancel" in found["jobs"].remedy
            other = await ask(service.base_url, token, Wanted(2, "another run"))
            assert other["jobs"].level is Level.PASS
        finally:
            await api.post(f"/{job['job_id']}:cancel")
            await api.wait_for_job(job["job_id"], "cancelled")


@pytest.mark.parametrize(("token", "said"), [("wrong-secret", "refused the token"), (None, "wants a token")])
async def test_a_wrong_or_missing_token_fails_and_nothing_more_is_asked(
    service: EmbeddedService, token: str | None, said: str
) -> None:
    found = await ask(service.base_url, token)
    assert list(found) == ["reachable", "credentials"]
    assert found["credentials"].level is Level.FAIL
    assert said in found["credentials"].detail
    assert "DRYDOCK_SERVICE_TOKEN" in found["credentials"].remedy


async def test_a_token_that_may_not_create_jobs_fails(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    store = await Store.open(state / DATABASE)
    token, _ = await create_token(store, "eve", Role.VIEWER)
    await store.close()
    async with EmbeddedService(state) as service:
        found = await ask(service.base_url, token)
    assert found["credentials"].level is Level.FAIL
    assert "eve (viewer), who may not create jobs" in found["credentials"].detail


async def test_a_service_that_is_not_there_fails(service: EmbeddedService) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    found = await ask(f"http://127.0.0.1:{port}", None)
    assert list(found) == ["reachable"]
    assert found["reachable"].level is Level.FAIL
    assert "no connection" in found["reachable"].detail


async def test_a_service_that_tells_no_identity_is_taken_as_it_is_and_one_that_is_none_fails() -> None:
    with TrainingServer().serving() as server:
        found = await ask(server.url, "hosted-secret", Wanted(2, "me"))
        assert found["credentials"] == Finding("credentials", Level.PASS, "accepted")
        server.faults = [(404, {"message": "no such page"})]
        found = await ask(server.url, None)
    assert found["capacity"].level is Level.FAIL
    assert "is this a training service?" in found["capacity"].remedy


@pytest.mark.parametrize(
    ("capacity", "level"),
    [
        (Capacity(max_total_gpus=8, available_gpus=4), Level.PASS),
        (Capacity(max_total_gpus=8, available_gpus=3), Level.WARN),
        (Capacity(max_total_gpus=8, available_gpus=8, pending_gpus=4), Level.WARN),
        (Capacity(max_total_gpus=3, available_gpus=3), Level.FAIL),
        (Capacity(max_total_gpus=0, available_gpus=0), Level.FAIL),
        (Capacity(max_total_gpus=-1, available_gpus=0), Level.WARN),
        (Capacity(has_reservation=True, max_total_gpus=0, available_gpus=4), Level.PASS),
    ],
)
async def test_capacity_is_enough_later_or_never(capacity: Capacity, level: Level) -> None:
    assert capacity_finding(capacity, 4, "H200").level is level


async def test_jobs_that_are_over_do_not_count() -> None:
    over = Job(job_id="a", comment="me", status="terminated")  # pyright: ignore[reportArgumentType]
    assert live_jobs([over], "me").level is Level.PASS


async def test_a_runs_own_service_needs_room_too() -> None:
    assert [finding.level for finding in check_own_service(Wanted(2, None))] == [Level.PASS, Level.PASS]
    assert check_own_service(Wanted(10**6, None))[-1].level is Level.FAIL

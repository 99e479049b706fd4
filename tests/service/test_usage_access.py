"""Who may read whose usage, against a real service whose database holds two users' jobs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from builders.service_api import Api

from drydock.service import schema as tables
from drydock.service.embedded import EmbeddedService
from drydock.service.identity import Role
from drydock.service.meters import Entry, Meter, Metered, add
from drydock.service.settings import DATABASE
from drydock.service.store import Store
from drydock.service.tokens import create_token

OWNERS = {"a": "anna", "b": "bert"}


@pytest_asyncio.fixture
async def tokens(state_dir: Path) -> dict[str, str]:
    """A token by name of user; the database then holds a job of each, and its usage."""
    state_dir.mkdir()
    store = await Store.open(state_dir / DATABASE)
    row = {"status": "cancelled", "created_at": 1.0, "updated_at": 1.0, "body": {"sub_job_configs": []}}
    await store.put(tables.jobs, [{**row, "job_id": job_id, "owner": owner} for job_id, owner in OWNERS.items()])
    entries = [
        Entry("2026-01-31", job_id, Metered(Meter.GPU_SECONDS, 60.0, f"{job_id}:training:0")) for job_id in OWNERS
    ]
    await store.run(lambda connection: add(connection, entries))
    roles = {"anna": Role.USER, "bert": Role.VIEWER, "root": Role.ADMIN}
    made = {user: (await create_token(store, user, role))[0] for user, role in roles.items()}
    await store.close()
    return made


@pytest_asyncio.fixture
async def service(state_dir: Path, tokens: dict[str, str]) -> AsyncIterator[EmbeddedService]:
    async with EmbeddedService(state_dir) as running:
        yield running


async def test_a_user_sees_own_usage_and_an_admin_sees_all(service: EmbeddedService, tokens: dict[str, str]):
    for user, jobs in (("anna", ["a"]), ("bert", ["b"]), ("root", ["a", "b"])):
        async with Api(service.base_url, tokens[user]) as api:
            seen = await api.get("/usage")
            assert [line["job_id"] for line in seen["usage"]] == jobs
            assert seen["total"]["meters"]["gpu_seconds"] == 60.0 * len(jobs)
            for job_id in OWNERS:
                allowed = 200 if job_id in jobs else 403
                assert (await api.call("GET", f"/{job_id}/usage")).status_code == allowed
                assert (await api.call("GET", "/usage", params={"job_id": job_id})).status_code == allowed
    async with Api(service.base_url, tokens["anna"]) as api:
        assert (await api.call("GET", "/usage", params={"user": "bert"})).status_code == 403
        assert len((await api.get("/usage", params={"user": "anna"}))["usage"]) == 1
    async with Api(service.base_url, tokens["root"]) as api:
        assert [line["user"] for line in (await api.get("/usage", params={"by": "user"}))["usage"]] == ["anna", "bert"]
        assert (await api.get("/usage", params={"user": "bert"}))["total"]["meters"]["gpu_seconds"] == 60.0

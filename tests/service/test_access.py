"""Whose jobs a token reaches: every route that names a job, the lists, and what a reading role may not do."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from builders.service_api import Api

from drydock.service.embedded import EmbeddedService
from drydock.service.identity import Role
from drydock.service.store import Store
from drydock.service.tokens import create_token

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANNS = "anns-job"
BOBS = "bobs-job"


@dataclass(frozen=True, slots=True)
class Callers:
    """One API of each user."""

    ann: Api
    bob: Api
    viewer: Api
    """Of ann, with the role viewer."""
    operator: Api
    service: EmbeddedService


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def callers(tmp_path_factory: pytest.TempPathFactory, model: str) -> AsyncIterator[Callers]:
    """A service where ann and bob have a job each; both jobs are over, since no route here needs a worker."""
    state_dir = tmp_path_factory.mktemp("access") / "state"
    state_dir.mkdir()
    store = await Store.open(state_dir / "service.sqlite")
    made = [
        (await create_token(store, user, role))[0]
        for user, role in (("ann", Role.USER), ("bob", Role.USER), ("ann", Role.VIEWER))
    ]
    await store.close()
    running = EmbeddedService(state_dir, model_dirs=[Path(model).parent])
    async with running as service, Api.of(service) as operator:
        url = service.base_url
        async with Api(url, made[0]) as ann, Api(url, made[1]) as bob, Api(url, made[2]) as viewer:
            for api, job_id in ((ann, ANNS), (bob, BOBS)):
                body = {"job_id": job_id, "sub_job_configs": [_sampling(model)]}
                await api.post("", json=body)
                await api.post(f"/{job_id}:cancel")
            yield Callers(ann, bob, viewer, operator, service)


def _sampling(model: str) -> dict:
    config = {"max_seq_len": 64, "n_gpus": 1}
    return {"job_type": "sampling", "model_name": model, "inference_config": config}


async def _routes(api: Api) -> list[tuple[str, str]]:
    """Method and path of every route that names a job, from the service's own description."""
    document = (await api.http.get("/openapi.json")).json()
    fill = {"request_id": "req_1", "checkpoint_id": "cp_1"}
    found = []
    for path, methods in document["paths"].items():
        inner = path.partition("{endpoint}")[2] if "{endpoint}" in path else path
        if "{job_id}" in inner and "/signed/" not in inner:
            for name, value in fill.items():
                inner = inner.replace(f"{{{name}}}", value)
            found.extend((method.upper(), inner) for method in methods if method in ("get", "post", "delete"))
    return found


async def test_no_route_reaches_another_users_job_and_none_names_its_owner(callers: Callers):
    routes = await _routes(callers.operator)
    assert len(routes) >= 12
    for method, path in routes:
        answer = await callers.ann.call(method, path.replace("{job_id}", BOBS))
        assert answer.status_code == 403, (method, path, answer.text)
        assert BOBS in answer.json()["message"]
        assert "bob " not in answer.text
        unknown = await callers.ann.call(method, path.replace("{job_id}", "nobodys"))
        assert unknown.status_code == 404, (method, path, unknown.text)


async def test_an_admin_reaches_all_jobs_and_a_user_their_own(callers: Callers):
    for api, job_id in ((callers.ann, ANNS), (callers.operator, ANNS), (callers.operator, BOBS)):
        job = await api.get(f"/{job_id}")
        assert (job["submitted_by"], job["owner_role"]) == (job_id.partition("s-")[0], "user")


async def test_lists_show_ones_own_jobs_and_an_admin_all_or_one_users(callers: Callers):
    async def listed(api: Api, **params: str) -> set[str]:
        return {job["job_id"] for job in (await api.get("", params=params))["jobs"]}

    assert await listed(callers.ann) == {ANNS} == await listed(callers.ann, user="ann") == await listed(callers.viewer)
    assert await listed(callers.operator) == {ANNS, BOBS}
    assert await listed(callers.operator, user="bob") == {BOBS}
    refused = await callers.ann.call("GET", "", params={"user": "bob"})
    assert refused.status_code == 403
    assert "'bob' is not you" in refused.json()["message"]


async def test_a_viewer_reads_and_changes_nothing(callers: Callers, model: str):
    assert (await callers.viewer.get(f"/{ANNS}"))["job_id"] == ANNS
    tail = {"operation_type": "tail-logs"}
    assert "entries" in await callers.viewer.post(f"/{ANNS}/operation", json=tail)
    assert (await callers.viewer.call("POST", f"/{BOBS}/operation", json=tail)).status_code == 403
    reset = {"operation_type": "reset-prefix-cache"}
    for path, body in (
        ("", {"sub_job_configs": [_sampling(model)]}),
        (f"/{ANNS}:cancel", {}),
        (f"/{ANNS}/step", {}),
        (f"/{ANNS}/operation", reset),
    ):
        answer = await callers.viewer.call("POST", path, json=body)
        assert answer.status_code == 403
        assert "viewer" in answer.json()["message"]
    nested = b'{"a":' + b"[" * 200_000
    assert (await callers.viewer.call("POST", f"/{ANNS}/operation", content=nested)).status_code == 403


async def test_another_users_checkpoint_is_no_source(callers: Callers, model: str):
    source = {"checkpoint_id": "cp_1", "source_job_id": BOBS}
    body = {"sub_job_configs": [{**_sampling(model), "source_checkpoint_info": source}]}
    answer = await callers.ann.call("POST", "", json=body)
    assert answer.status_code == 403
    assert BOBS in answer.json()["message"]


@pytest.mark.parametrize("name", ["capacity", "signed", "usage", "whoami"])
async def test_names_that_are_paths_are_no_job_ids(callers: Callers, model: str, name: str):
    answer = await callers.ann.call("POST", "", json={"job_id": name, "sub_job_configs": [_sampling(model)]})
    assert answer.status_code == 422
    assert name in answer.json()["message"]


async def test_a_token_that_calls_too_often_is_told_when_to_come_back_and_others_are_not(tmp_path: Path):
    async with EmbeddedService(tmp_path / "state", rate_limit_per_s=2) as service, Api.of(service) as api:
        answers = await asyncio.gather(*(api.call("GET", "/whoami") for _ in range(8)))
        codes = sorted(answer.status_code for answer in answers)
        assert codes[:4] == [200] * 4
        assert codes[-1] == 429
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert (await api.http.get("/healthz")).status_code == 200
        await asyncio.sleep(1)
        assert (await api.call("GET", "/whoami")).status_code == 200


async def test_a_folder_outside_the_model_dirs_is_refused_at_once(callers: Callers, tmp_path: Path):
    for api in (callers.ann, callers.operator):
        answer = await api.call("POST", "", json={"sub_job_configs": [_sampling(str(tmp_path))]})
        assert answer.status_code == 403
        assert "sub_job_configs.0.model_name" in answer.json()["message"]

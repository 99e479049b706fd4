"""The running service under calls made at random: from its own OpenAPI document, and with broken frames.

Never a 5xx but 501, which says that a part of the API is not served; never a hang; never memory without bounds; and
afterwards the same job still trains and samples.
"""

import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio
import schemathesis
from builders.broken_frames import batch, broken_frames, chunk_runs, odd_values
from builders.service_api import PREFIX, Api, chunks_of, sampling_config, training_config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from drydock.service.chunk_groups import MAX_GROUPS
from drydock.service.embedded import EmbeddedService
from drydock.wire.frame import encode_frame

JOB = "fuzzed"
CALL_LIMIT_S = 20.0
MEMORY_LIMIT_BYTES = 1 << 30
ALLOWED = (200, 400, 404, 409, 413, 422, 429)
BOUNDED = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FRAMES = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True, slots=True)
class Target:
    """A service that is offline, so that no made-up model name starts a worker, and its job."""

    url: str
    headers: dict[str, str]
    http: httpx.Client

    def send(self, method: str, path: str, **fields: Any) -> httpx.Response:
        return self.http.request(method, self.url + PREFIX + path, headers=self.headers, **fields)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def target(tmp_path_factory: pytest.TempPathFactory, model: str) -> AsyncIterator[Target]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HUB_CACHE", str(folder / "hub"))
        async with EmbeddedService(folder / "state") as service, Api.of(service) as api:
            await api.post(
                "", json={"job_id": JOB, "sub_job_configs": [sampling_config(model), training_config(model)]}
            )
            await api.wait_for_job(JOB)
            assert service.pid is not None
            before = psutil.Process(service.pid).memory_info().rss
            headers = {"Authorization": f"Bearer {service.token.get_secret_value()}"}
            with httpx.Client(timeout=CALL_LIMIT_S) as http:
                yield Target(service.base_url, headers, http)
            [chunk] = chunks_of(batch())
            trained = await api.result(f"/{JOB}/forward-backward", content=chunk)
            assert trained["avg_loss"] > 0
            sampled = {"prompts": [[5, 6]], "sampling_params": {"max_tokens": 2, "ignore_eos": True}}
            assert len((await api.result(f"/{JOB}/generate", json=sampled))["results"][0]["token_ids"]) == 2
            assert psutil.Process(service.pid).memory_info().rss < before + MEMORY_LIMIT_BYTES


def document() -> dict[str, Any]:
    from drydock.service.app import create_app
    from drydock.service.openapi import document
    from drydock.service.settings import ServiceSettings

    return document(create_app(ServiceSettings(state_dir=Path(os.devnull))))


SCHEMA = schemathesis.openapi.from_dict(document())
CONFORMANCE = [status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = ("/events", "/logs")
"""Answers that go on as long as their job: asked for only of jobs that do not exist."""


def check(case: Any, target: Target, *, real_job: bool) -> None:
    """One call of a schemathesis case, aimed at the running job where that can end."""
    path = case.operation.path
    if real_job and "{job_id}" in path and not path.endswith((*ENDLESS, ":cancel")):
        case.path_parameters["job_id"] = JOB
    if isinstance(case.body, dict) and isinstance(case.body.get("sampling_params"), dict):
        case.body["sampling_params"]["max_tokens"] = 2
    started = time.monotonic()
    answer = case.call(base_url=target.url, headers=target.headers, timeout=CALL_LIMIT_S)
    assert time.monotonic() - started < CALL_LIMIT_S
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
    case.validate_response(answer, checks=CONFORMANCE)
    if answer.status_code >= 400 and "application/json" in answer.headers.get("content-type", [""])[0]:
        assert answer.json()["message"] or answer.json()["detail"]


@SCHEMA.parametrize()
@BOUNDED
def test_calls_from_the_document(case: Any, target: Target):
    check(case, target, real_job=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@SCHEMA.parametrize()
@LONG
def test_calls_from_the_document_for_long(case: Any, target: Target):
    check(case, target, real_job=True)


def post_frames(target: Target, bodies: list[bytes], path: str) -> None:
    for body in bodies:
        answer = target.send("POST", f"/{JOB}/{path}", content=body)
        assert answer.status_code in ALLOWED, answer.text


GOOD = encode_frame(batch())
PROMPTS = encode_frame({"prompts": [[5, 6]], "sampling_params": {"max_tokens": 2}})


@given(broken_frames(GOOD), st.sampled_from(["forward-backward", "generate", "generate-stream"]))
@FRAMES
def test_broken_frames(target: Target, data: bytes, path: str):
    post_frames(target, [data], path)


@given(broken_frames(PROMPTS), st.sampled_from(["generate", "generate-stream"]))
@FRAMES
def test_broken_prompts(target: Target, data: bytes, path: str):
    post_frames(target, [data], path)


@given(odd_values())
@FRAMES
def test_whole_frames_with_odd_values(target: Target, value: dict[str, Any]):
    post_frames(target, chunks_of(value), "forward-backward")


@given(chunk_runs())
@FRAMES
def test_mixed_up_chunks(target: Target, bodies: list[bytes]):
    post_frames(target, bodies, "forward-backward")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(broken_frames(GOOD), odd_values(), chunk_runs())
@LONG
def test_frames_for_long(target: Target, data: bytes, value: dict[str, Any], bodies: list[bytes]):
    post_frames(target, [data, *chunks_of(value), *bodies], "forward-backward")


def test_unfinished_uploads_are_bounded_and_the_oldest_give_way(target: Target):
    uploads = [chunks_of(batch(4, 200), max_bytes=9_000) for _ in range(MAX_GROUPS + 1)]
    assert len(uploads[0]) > 1
    for first, *_ in uploads:
        assert target.send("POST", f"/{JOB}/forward-backward", content=first).status_code == 200
    forgotten = target.send("POST", f"/{JOB}/forward-backward", content=uploads[0][1])
    assert forgotten.status_code == 409
    assert forgotten.json()["detail"]["code"] == "chunk_group_restart_required"

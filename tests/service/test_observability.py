"""What can be seen of a service from outside: ids of calls, its log lines, its metrics; and what must not be."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from builders.service_api import Api
from prometheus_client.parser import text_string_to_metric_families

from drydock.service.embedded import EmbeddedService
from drydock.service.service_log import LOG_FILE, service_log


async def _lines(state_dir: Path, request_id: str) -> list[dict]:
    """The log's lines about one call; they are written a moment after its answer."""
    for _ in range(100):
        text = (state_dir / LOG_FILE).read_text() if (state_dir / LOG_FILE).exists() else ""
        found = [line for line in map(json.loads, text.splitlines()) if line.get("request_id") == request_id]
        if found:
            return found
        await asyncio.sleep(0.05)
    pytest.fail(f"no line about {request_id}")


async def test_every_answer_carries_the_calls_id_and_the_log_one_line_without_secrets(state_dir: Path):
    async with EmbeddedService(state_dir) as service, Api.of(service) as api:
        answer = await api.call("GET", "/nobody?secret=hidden", headers={"x-request-id": "mine-1.a_b"})
        assert answer.headers["x-request-id"] == answer.headers["x-snowflake-request-id"] == "mine-1.a_b"
        [line] = await _lines(state_dir, "mine-1.a_b")
        assert line["logger"] == "drydock.service.calls"
        assert (line["user"], line["method"], line["status"]) == ("operator", "GET", 404)
        assert line["path"].endswith("/nobody")
        assert 0 < line["ms"] < 10_000

        made = set()
        for given in ("", "a b", "x" * 65, "line\tend", "{}"):
            answer = await api.call("GET", "/capacity", headers={"x-request-id": given} if given else {})
            made.add(answer.headers["x-request-id"])
            assert answer.headers["x-request-id"] != given
        assert len(made) == 5

        async with Api(service.base_url, None) as stranger:
            refused = await stranger.call("GET", "", headers={"authorization": "Bearer stolen"})
            assert refused.status_code == 401
            [line] = await _lines(state_dir, refused.headers["x-request-id"])
            assert (line["user"], line["status"]) == (None, 401)
            assert (await stranger.http.get("/healthz")).headers["x-request-id"]
    for file in (state_dir / LOG_FILE, state_dir / "service.log"):
        text = file.read_text()
        assert not any(secret in text for secret in ("hidden", "stolen", service.token.get_secret_value()))


async def test_metrics_name_routes_not_jobs_and_need_the_token(state_dir: Path):
    async with EmbeddedService(state_dir) as service, Api.of(service) as api:
        await api.get("/capacity")
        for job in ("job-x1", "job-x2"):
            await api.call("GET", f"/{job}")
        await api.call("GET", "/job-x3/requests/req_1")
        await api.call("BREW", "/capacity")
        async with Api(service.base_url, None) as stranger:
            assert (await stranger.http.get("/metrics")).status_code == 401
        answer = await api.http.get("/metrics")
        assert answer.status_code == 200
        families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        calls = {
            (sample.labels["route"], sample.labels["method"], sample.labels["status"]): sample.value
            for sample in families["drydock_calls"].samples
            if sample.name == "drydock_calls_total"
        }
        assert calls["/capacity", "GET", "200"] == 1
        assert calls["/{job_id}", "GET", "404"] == 2
        assert calls["/{job_id}/requests/{request_id}", "GET", "404"] == 1
        assert {method for _, method, _ in calls} == {"GET", "other"}
        jobs = {sample.labels["status"]: sample.value for sample in families["drydock_jobs"].samples}
        assert jobs["running"] == jobs["failed"] == 0
        assert any(sample.labels["state"] == "total" for sample in families["drydock_pool_slots"].samples)
        assert {"drydock_call_seconds", "process_resident_memory_bytes", "drydock_open_requests"} <= families.keys()
        assert not any(job in answer.text for job in ("job-x1", "job-x2", "job-x3"))


def test_the_log_holds_tracebacks_and_leaves_the_loggers_as_it_found_them(tmp_path: Path):
    package = logging.getLogger("drydock")
    before = list(package.handlers)
    with service_log(tmp_path):
        try:
            raise ValueError("a fault")
        except ValueError:
            logging.getLogger("drydock.service.some").exception("it %s", "failed")
    assert package.handlers == before
    [line] = map(json.loads, (tmp_path / LOG_FILE).read_text().splitlines())
    assert (line["level"], line["logger"]) == ("error", "drydock.service.some")
    assert line["msg"].startswith("it failed\nTraceback")
    assert "ValueError: a fault" in line["msg"]

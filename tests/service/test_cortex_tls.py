"""The published client in its host + PAT mode: https on loopback with a certificate made here, a token as the PAT."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from builders.certificate import make_certificate
from builders.cortex_cli import CortexCli
from builders.service_api import sampling_config

from drydock.service.embedded import EmbeddedService

pytest.importorskip("cortex_training")
pytestmark = pytest.mark.asyncio(loop_scope="session")

CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class Https:
    """A service that speaks https only."""

    host: str
    pat: str
    cert: Path


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def https(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Https]:
    folder = tmp_path_factory.mktemp("https")
    made = make_certificate(folder / "tls")
    async with EmbeddedService(folder / "state", tls_cert=made.cert, tls_key=made.key) as running:
        assert running.base_url.startswith("https://")
        port = running.base_url.rpartition(":")[2]
        yield Https(f"localhost:{port}", running.token.get_secret_value(), made.cert)


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORTEX_TRAINING_DISABLE_TELEMETRY", "1")
    for name in CA_VARIABLES:
        monkeypatch.delenv(name, raising=False)


async def test_a_job_from_its_creation_to_its_end(https: Https, model: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(https.cert))
    results, status = await asyncio.to_thread(_sample, https, model)
    assert [len(result["token_ids"]) for result in results] == [2]
    assert status == "cancelled"


def _sample(https: Https, model: str) -> tuple[list[dict[str, Any]], str]:
    from cortex_training import CortexTrainingClient

    with CortexTrainingClient.from_pat(https.host, https.pat, "DB", "PUBLIC", poll_interval=0.05) as client:
        job_id = client.create_job_from_body({"sub_job_configs": [sampling_config(model)]})["job_id"]
        client.wait_for_job(job_id)
        request = client.generate(job_id, [[5, 6, 7]], {"max_tokens": 2, "ignore_eos": True})
        results = client.poll_request(job_id, request)["results"]
        client.cancel_job(job_id)
        return results, client.get_job(job_id)["status"]


async def test_the_command_line_with_host_and_pat(https: Https, tmp_path: Path):
    cli = CortexCli(tmp_path, "http://unused")
    options = ["--host", https.host, "--pat", https.pat, "--database", "DB", "--no-verify-ssl"]
    out, _ = await cli.text(*options, "capacity", "--hardware", "H200")
    assert json.loads(out)["has_reservation"] is False
    out, _ = await cli.text(*options, "list")
    assert "jobs" in json.loads(out)


async def test_a_wrong_pat_is_refused_at_once_and_not_echoed(https: Https, tmp_path: Path):
    cli = CortexCli(tmp_path, "http://unused")
    options = ["--host", https.host, "--pat", "not-the-token", "--database", "DB", "--no-verify-ssl"]
    _, error = await cli.text(*options, "list", code=1)
    assert "401" in error
    assert "not-the-token" not in error

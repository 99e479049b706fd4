"""Which service a run talks to, and with which secret."""

import ssl
from pathlib import Path

import pytest
from builders.certificate import make_certificate
from pydantic import SecretStr

from drydock.client import Refused, TrainingClient
from drydock.errors import ConfigError, UserError
from drydock.report.progress import RunProgress
from drydock.service.embedded import EmbeddedService
from drydock.training.config import TrainerServiceConfig
from drydock.training.run_service import Secrets, check_service, service_client, token_remedy

HOSTED = {"host": "account.example.com", "database": "DB"}
BOTH = Secrets(service_token=SecretStr("ours"), pat=SecretStr("theirs"))


def test_each_service_gets_its_own_secret() -> None:
    hosted = service_client(TrainerServiceConfig(**HOSTED), BOTH).access
    assert (hosted.base_url, hosted.token, hosted.hosted) == ("https://account.example.com", "theirs", True)
    assert (hosted.database, hosted.schema, hosted.endpoint) == ("DB", "PUBLIC", "cortex-training")
    ours = service_client(TrainerServiceConfig(base_url="http://box:1", **HOSTED), BOTH).access
    assert (ours.base_url, ours.token, ours.hosted) == ("http://box:1", "ours", False)


def test_a_hosted_service_without_a_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="ARCTIC_CORTEX_PAT"):
        service_client(TrainerServiceConfig(**HOSTED), Secrets(service_token=SecretStr("ours")))
    with pytest.raises(ConfigError, match=r"service\.base_url or service\.host"):
        service_client(TrainerServiceConfig(), BOTH)


async def test_a_service_is_reached_by_host_and_access_token(tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "tls")
    trusts = ssl.create_default_context(cafile=made.cert)
    async with EmbeddedService(tmp_path / "state", tls_cert=made.cert, tls_key=made.key) as service:
        settings = TrainerServiceConfig(host=f"localhost:{service.base_url.rpartition(':')[2]}", database="DB")
        known = service_client(settings, Secrets(pat=service.token)).access
        async with TrainingClient.of(known, verify_ssl=trusts) as client:
            assert await client.list_jobs() == []
        unknown = service_client(settings, Secrets(pat=SecretStr("very-wrong"))).access
        async with TrainingClient.of(unknown, verify_ssl=trusts) as client:
            with pytest.raises(Refused, match="401") as refusal:
                await client.list_jobs()
    assert "very-wrong" not in str(refusal.value)


async def test_a_service_that_does_not_take_the_caller_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with EmbeddedService(tmp_path / "state") as service:
        settings = TrainerServiceConfig(base_url=service.base_url)
        await check_service(settings, Secrets(service_token=service.token), RunProgress())
        with pytest.raises(UserError, match=r"wants a token \(HTTP 401\): set DRYDOCK_SERVICE_TOKEN"):
            await check_service(settings, Secrets(), RunProgress())
    assert "ARCTIC_CORTEX_PAT" in token_remedy(TrainerServiceConfig(**HOSTED))

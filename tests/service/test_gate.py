import asyncio
import base64

import httpx
import pytest
from builders.service_api import Api

from drydock.service.embedded import EmbeddedService

pytestmark = pytest.mark.asyncio(loop_scope="session")


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"user:{password}".encode()).decode()}


async def test_every_call_but_health_needs_the_token(service: EmbeddedService):
    async with Api(service.base_url, None) as stranger:
        for method, path in (("GET", ""), ("POST", ""), ("GET", "/capacity"), ("GET", "/j"), ("POST", "/j:cancel")):
            answer = await stranger.call(method, path)
            assert answer.status_code == 401
            assert "token" in answer.json()["message"]
        for header in ("Bearer wrong", "Bearer", "Basic !!!", "", f"Token {service.token.get_secret_value()}"):
            answer = await stranger.call("GET", "", headers={"Authorization": header})
            assert answer.status_code == 401, header
        health = await stranger.http.get("/healthz")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})


async def test_the_token_may_be_the_password_of_basic(service: EmbeddedService):
    async with Api(service.base_url, None) as stranger:
        assert (await stranger.call("GET", "", headers=basic(service.token.get_secret_value()))).status_code == 200
        assert (await stranger.call("GET", "", headers=basic("wrong"))).status_code == 401


@pytest.mark.parametrize(
    "prefix",
    [
        "/api/v2/databases/db/schemas/PUBLIC/cortex-training",
        "/api/v2/databases//schemas//cortex-training",
        "/api/v2/databases/My%20Db/schemas/a.b/another-endpoint",
    ],
)
async def test_any_database_schema_and_endpoint_is_the_same_service(service: EmbeddedService, prefix: str):
    async with Api(service.base_url, service.token.get_secret_value(), prefix=prefix) as calls:
        assert "jobs" in await calls.get("")
        assert "jobs" in await calls.get("/")
        assert (await calls.get("/capacity"))["has_reservation"] is False


async def test_paths_outside_the_prefix_and_unknown_jobs_are_404(api: Api):
    assert (await api.http.post("/api/v2/sessions", json={})).status_code == 404
    assert (await api.http.get("/")).status_code == 404
    answer = await api.call("GET", "/nobody")
    assert answer.status_code == 404
    assert "nobody" in answer.json()["message"]
    assert (await api.call("GET", "/nobody/requests/req_1")).status_code == 404


async def test_a_body_that_is_too_long_is_refused_declared_or_not(service: EmbeddedService, api: Api):
    async def endless():
        for _ in range(70):
            yield bytes(1 << 20)

    try:
        answer = await api.call("POST", "", content=endless())
        assert answer.status_code == 413
    except httpx.TransportError:
        pass  # the service may close the connection while the rest is still being sent
    host, port = service.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /api/v2/databases/d/schemas/s/e/j/step HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n"
        b"Authorization: Bearer " + service.token.get_secret_value().encode() + b"\r\n\r\n"
    )
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()

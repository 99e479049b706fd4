"""Tokens at rest and in use: made and revoked beside a running service, and what stays closed without one."""

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders.certificate import make_certificate
from builders.service_api import PREFIX, Api

from drydock.errors import UserError
from drydock.service.embedded import EmbeddedService
from drydock.service.identity import Role
from drydock.service.server import serve
from drydock.service.settings import ServiceSettings
from drydock.service.store import Store
from drydock.service.tokens import (
    REFRESH_S,
    Tokens,
    Unauthorized,
    create_token,
    is_loopback,
    list_tokens,
    revoke_token,
)

SERVE = """
import sys
from drydock.service.server import serve
from drydock.service.settings import ServiceSettings
serve(ServiceSettings.model_validate_json(sys.argv[1]))
"""


@asynccontextmanager
async def served(state_dir: Path, **settings: Any) -> AsyncIterator[str]:
    """The URL of a service that was started by hand, without a token of its own."""
    given = ServiceSettings(state_dir=state_dir, **settings).model_dump_json(exclude_unset=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, given), stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        yield next(word for word in line.split() if word.startswith("http"))
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0


@asynccontextmanager
async def store_of(where: Path | str) -> AsyncIterator[Store]:
    """The store of a state folder, or of a database URL."""
    if isinstance(where, Path):
        where.mkdir(parents=True, exist_ok=True)
        where = where / "service.sqlite"
    store = await Store.open(where)
    try:
        yield store
    finally:
        await store.close()


async def test_only_the_hash_of_a_token_is_kept(state_dir: Path):
    async with store_of(state_dir) as store:
        token, row = await create_token(store, "ann", Role.USER, expires_days=1)
        tokens = Tokens(store, None)
        await tokens.refresh()
        who = tokens.identify(b"Bearer " + token.encode())
        assert (who.user, who.role, who.token_id) == ("ann", Role.USER, row["token_id"])
        listed = await list_tokens(store)
        assert [entry["user"] for entry in listed] == ["ann"]
        assert "sha256" not in listed[0]
    secret = token.encode()
    assert len(secret) > 40
    for file in state_dir.iterdir():
        assert secret not in file.read_bytes()


@pytest.mark.parametrize("where", ["state_dir", "postgres_url"])
async def test_revoked_and_outdated_tokens_are_refused_by_name_and_leave_the_service_closed(
    request: pytest.FixtureRequest, where: str
):
    async with store_of(request.getfixturevalue(where)) as store:
        revoked, row = await create_token(store, "ann", Role.USER)
        outdated, late = await create_token(store, "bob", Role.USER, expires_days=1e-9)
        await revoke_token(store, row["token_id"])
        with pytest.raises(UserError, match="no token 'tok_0'"):
            await revoke_token(store, "tok_0")
        tokens = Tokens(store, None)
        assert tokens.open
        await tokens.refresh()
        assert not tokens.open
        with pytest.raises(Unauthorized, match=f"token {row['token_id']} is revoked"):
            tokens.identify(b"Bearer " + revoked.encode())
        with pytest.raises(Unauthorized, match=f"token {late['token_id']} is past its date"):
            tokens.identify(b"Bearer " + outdated.encode())
        with pytest.raises(Unauthorized, match="wrong token"):
            tokens.identify(b"Bearer else")
        with pytest.raises(Unauthorized, match="no token"):
            tokens.identify(b"")


@pytest.mark.parametrize("user", ["", "a b", "-a", "a" * 65, "a\n", "é"])
async def test_a_user_name_that_no_log_line_should_hold_is_refused(state_dir: Path, user: str):
    async with store_of(state_dir) as store:
        with pytest.raises(UserError, match="user"):
            await create_token(store, user, Role.USER)


async def test_a_running_service_sees_new_and_revoked_tokens_within_two_seconds(state_dir: Path):
    assert REFRESH_S < 2
    async with EmbeddedService(state_dir) as service, store_of(state_dir) as store:
        token, row = await create_token(store, "ann", Role.VIEWER)
        async with Api(service.base_url, token) as ann:
            await eventually(ann, 200)
            assert await ann.get("/whoami") == {"user": "ann", "role": "viewer"}
            await revoke_token(store, row["token_id"])
            await eventually(ann, 401)
        async with Api.of(service) as operator:
            assert await operator.get("/whoami") == {"user": "operator", "role": "admin"}


async def eventually(api: Api, status: int) -> None:
    """Waits two seconds at most for that status of whoami."""
    for _ in range(40):
        if (await api.call("GET", "/whoami")).status_code == status:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"whoami is not answered with {status} after 2 s")


async def test_without_a_token_it_serves_programs_of_this_machine_only(state_dir: Path):
    async with served(state_dir) as url, Api(url, None) as api:
        assert await api.get("/whoami") == {"user": "operator", "role": "admin"}
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            answer = await api.call("GET", "/whoami", headers=headers)
            assert answer.status_code == 403
            assert "evil.example" in answer.json()["message"]
        async with store_of(state_dir) as store:
            await create_token(store, "ann", Role.USER)
        await eventually(api, 401)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_a_token_it_listens_nowhere_else(state_dir: Path, host: str):
    with pytest.raises(UserError, match=r"no token.*drydock service token create|cannot listen"):
        serve(ServiceSettings(state_dir=state_dir, host=host), ready=lambda port: pytest.fail("it listens"))
    assert not (state_dir / "service.json").exists()


def test_loopback_names():
    assert all(is_loopback(name) for name in ("127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1", "[::1]"))
    assert not any(is_loopback(name) for name in ("", "0.0.0.0", "::", "example.org", "127.0.0.1.example.org"))


async def test_with_a_certificate_it_speaks_tls_only(state_dir: Path, tmp_path: Path):
    made = make_certificate(tmp_path / "tls")
    async with EmbeddedService(state_dir, tls_cert=made.cert, tls_key=made.key) as service:
        assert service.base_url.startswith("https://127.0.0.1:")
        headers = {"Authorization": f"Bearer {service.token.get_secret_value()}"}
        trust = ssl.create_default_context(cafile=made.cert)
        async with httpx.AsyncClient(verify=trust, headers=headers) as client:
            answer = await client.get(service.base_url + PREFIX + "/whoami")
            assert answer.json() == {"user": "operator", "role": "admin"}
            with pytest.raises(httpx.TransportError):
                await client.get(service.base_url.replace("https", "http") + PREFIX)
        async with httpx.AsyncClient() as stranger:
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                await stranger.get(service.base_url)


def test_a_certificate_that_cannot_be_used_is_refused_before_anything_starts(state_dir: Path, tmp_path: Path):
    made = make_certificate(tmp_path / "tls")
    other = make_certificate(tmp_path / "other")
    with pytest.raises(ValueError, match="give both or neither"):
        ServiceSettings(state_dir=state_dir, tls_cert=made.cert)
    for cert, key in ((made.cert, other.key), (tmp_path / "none", made.key)):
        with pytest.raises(UserError, match=r"tls_cert .* cannot be used"):
            serve(ServiceSettings(state_dir=state_dir, tls_cert=cert, tls_key=key))
    assert not state_dir.exists()

"""Servers over HTTP, made with the MCP project's own SDK: on a port of this machine, and inside a sandbox."""

import asyncio
import logging
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.bash_environment import BashEnvironment, bash_environment
from builders.mcp_sessions import SDK_SCRIPT, called, listening, started
from builders.sandbox_environment import build_environment
from harbor.models.task.config import MCPServerConfig

from drydock.errors import TaskError
from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.host import HostEnvironment

TOKEN = "sesame-open-quietly"


@pytest.fixture
async def bash(tmp_path: Path) -> AsyncIterator[BashEnvironment]:
    """Whatever a test does, no file of its requests is left."""
    before = set(Path("/tmp").glob(".mcp-*"))
    environment = bash_environment(tmp_path)
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)
    assert set(Path("/tmp").glob(".mcp-*")) <= before


@pytest.mark.parametrize(
    ("transport", "option"),
    [("streamable-http", ""), pytest.param("streamable-http", "json", marks=pytest.mark.slow), ("sse", "")],
)
async def test_tools_are_called(bash, transport, option):
    async with (
        listening(transport, *option.split()) as there,
        started(bash, there.server, max_output_chars=2_000_000) as servers,
    ):
        assert [tool.name for tool in servers.tools] == ["add", "alive", "letters", "sleep", "whoami"]
        assert await called(servers, "add", first=1, second=2) == "3"
        assert (await called(servers, "add", first="one", second=2)).startswith("error: ")
        assert await called(servers, "letters", count=500_000) == "é" * 500_000
        if option != "json":
            assert await called(servers, "alive") == "the client is alive"
        assert await called(servers, "add", first=2, second=2) == "4"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_a_call_that_takes_too_long_is_given_up(bash, transport):
    async with listening(transport) as there, started(bash, there.server, timeout_s=1) as servers:
        assert "did not answer within 1 s" in await called(servers, "sleep", seconds=30)
        assert await called(servers, "add", first=1, second=2) == "3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "said"), [("streamable-http", "Failed to connect"), ("sse", "ended with exit code")]
)
async def test_a_server_that_goes_away_is_told_to_the_model(bash, transport, said):
    async with listening(transport) as there, started(bash, there.server) as servers:
        await called(servers, "add", first=1, second=2)
        there.process.kill()
        await asyncio.to_thread(there.process.wait)
        for _ in range(2):
            answer = await called(servers, "add", first=1, second=2)
            assert answer.startswith("error: [the MCP server weather failed: ")
            assert said in answer


@pytest.mark.parametrize(
    ("transport", "path", "said"),
    [
        ("streamable-http", "/nothing", "it answered with HTTP status 404 Not Found: Not Found"),
        pytest.param("sse", "/nothing", "it answered with HTTP status 404 Not Found", marks=pytest.mark.slow),
        pytest.param("sse", "/mcp", "it answered with HTTP status", marks=pytest.mark.slow),
    ],
)
async def test_an_address_that_is_no_server_is_the_tasks_fault(bash, transport, path, said):
    async with listening("streamable-http") as there:
        wrong = there.server.model_copy(
            update={"transport": transport, "url": f"{there.server.url}".replace("/mcp", path)}
        )
        with pytest.raises(TaskError, match=f"'weather' of the task did not start: {said}"):
            async with started(bash, wrong):
                pass


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_nobody_at_the_address_is_the_tasks_fault(bash, transport):
    server = MCPServerConfig.model_validate({"name": "m", "transport": transport, "url": "http://127.0.0.1:9/mcp"})
    with pytest.raises(TaskError, match=r"(?s)the MCP server 'm' .* exit code 7.*curl: \(7\)"):
        async with started(bash, server):
            pass


async def test_only_http_is_fetched(bash):
    server = MCPServerConfig(name="m", transport="streamable-http", url="file:///etc/passwd")
    with pytest.raises(TaskError, match=r"(?s)Protocol .?file.? ") as failure:
        async with started(bash, server):
            pass
    assert "root:" not in str(failure.value)


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SandboxEnvironment]:
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    environment = build_environment(HostEnvironment, tmp_path / "task", "FROM debian\nWORKDIR /app\n")
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)


@pytest.mark.sandbox
@pytest.mark.parametrize("transport", ["streamable-http", pytest.param("sse", marks=pytest.mark.slow)])
async def test_headers_reach_the_server_and_nobody_else(host, transport, caplog):
    caplog.set_level(logging.DEBUG)
    serve = shlex.join([sys.executable, str(SDK_SCRIPT), transport, "18080", TOKEN])
    await host.exec(
        f"setsid {serve} >/dev/null 2>&1 & until curl -s 127.0.0.1:18080; do sleep 0.1; done", timeout_sec=30
    )
    path = "sse" if transport == "sse" else "mcp"
    url = f"http://127.0.0.1:18080/{path}"
    server = MCPServerConfig.model_validate({"name": "weather", "transport": transport, "url": url})
    secrets = [TOKEN, f"Bearer {TOKEN}"]
    with pytest.raises(TaskError) as failure:
        async with started(
            host, server, headers={"weather": {"Authorization": f"Bearer {TOKEN}x"}}, secrets=[f"Bearer {TOKEN}x"]
        ):
            pass
    assert "HTTP status 401" in str(failure.value)
    assert TOKEN not in str(failure.value)
    async with started(
        host, server, headers={"weather": {"Authorization": f"Bearer {TOKEN}"}}, secrets=secrets
    ) as servers:
        assert await called(servers, "whoami") == "your token is [hidden]"
        files = (await host.exec("stat -c %a /tmp/.mcp-*/headers")).stdout
        assert files == "600\n"
        sleeping = asyncio.create_task(called(servers, "sleep", seconds=1))
        await asyncio.sleep(0.3)
        visible = await host.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "curl" in (visible.stdout or "")
        assert (visible.stdout or "").count(TOKEN) == 1  # the server itself
        assert await sleeping == "awake"
    assert (await host.exec("ls -A /tmp | grep mcp-")).stdout == ""
    assert TOKEN not in caplog.text

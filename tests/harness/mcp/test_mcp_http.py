"""Servers over HTTP, made with the MCP project's own SDK: on a port of this machine, and inside a sandbox."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from builders.bash_environment import BashEnvironment
from builders.mcp_http import answer, http, replying
from builders.mcp_sessions import Watched, called, listening, started
from builders.sandbox_environment import build_environment
from harbor.models.task.config import MCPServerConfig

from drydock.errors import TaskError
from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.mcp.servers import ServerLimits
from drydock.sandbox.environment import SandboxEnvironment
from drydock.sandbox.host import HostEnvironment

TOKEN = "sesame-open-quietly"


@pytest.fixture
async def watched(bash: BashEnvironment) -> AsyncIterator[Watched]:
    """Whatever a test does, nothing of its requests is left."""
    watched = Watched(bash)
    yield watched
    watched.after = None
    await watched.nothing_is_left()


@pytest.mark.parametrize(
    ("transport", "option"),
    [("streamable-http", ""), pytest.param("streamable-http", "json", marks=pytest.mark.slow), ("sse", "")],
)
async def test_tools_are_called(bash, watched, transport, option):
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
async def test_a_call_that_takes_too_long_is_given_up(bash, watched, transport):
    async with listening(transport) as there, started(bash, there.server, timeout_s=1) as servers:
        assert "did not answer within 1 s" in await called(servers, "sleep", seconds=30)
        assert await called(servers, "add", first=1, second=2) == "3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "said"), [("streamable-http", "Failed to connect"), ("sse", "ended with exit code")]
)
async def test_a_server_that_goes_away_is_told_to_the_model(bash, watched, transport, said):
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
async def test_an_address_that_is_no_server_is_the_tasks_fault(bash, watched, transport, path, said):
    async with listening("streamable-http") as there:
        wrong = there.server.model_copy(
            update={"transport": transport, "url": f"{there.server.url}".replace("/mcp", path)}
        )
        with pytest.raises(TaskError, match=f"'weather' of the task did not start: {said}"):
            async with started(bash, wrong):
                pass


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_nobody_at_the_address_is_the_tasks_fault(bash, watched, transport):
    server = MCPServerConfig.model_validate({"name": "m", "transport": transport, "url": "http://127.0.0.1:9/mcp"})
    with pytest.raises(TaskError, match=r"(?s)the MCP server 'm' .* exit code 7.*curl: \(7\)"):
        async with started(bash, server):
            pass


async def test_only_http_is_fetched(bash, watched):
    server = MCPServerConfig(name="m", transport="streamable-http", url="file:///etc/passwd")
    with pytest.raises(TaskError, match=r"(?s)Protocol .?file.? ") as failure:
        async with started(bash, server):
            pass
    assert "root:" not in str(failure.value)


def complete(message: dict) -> str:
    return http(answer(message) + "\n")


def streamed(message: dict) -> str:
    return http(f"data: {answer(message)}\n\n", "text/event-stream")


async def test_a_reply_that_ends_its_line_and_comes_before_the_end_is_read(bash, watched):
    async with replying(complete) as odd, started(bash, odd) as servers:
        assert await called(servers, "greet") == "hello"
    async with replying(lambda _: http("no such\npage\n", "text/plain", "404 Not Found")) as odd:
        with pytest.raises(TaskError, match="HTTP status 404 Not Found: no such\npage; mend"):
            async with started(bash, odd):
                pass


async def test_an_answer_counts_although_its_request_cannot_be_stopped(bash, watched):
    async def too_long(script: str) -> None:
        if script.startswith("over()"):
            raise TimeoutError

    async with replying(streamed, stays_s=1) as odd, started(bash, odd) as servers:
        watched.after = too_long
        assert await called(servers, "greet") == "hello"
        watched.after = None


@pytest.mark.parametrize("address", ["http://[x", "/m\x00", "/m\x01", f"/{'m' * 9_000}", "http://elsewhere/m"])
async def test_a_stream_that_names_no_usable_address_is_the_tasks_fault(bash, watched, address):
    stream = http(f"event: endpoint\ndata: {address}\n\n", "text/event-stream")
    async with replying(lambda _: stream, transport="sse", stays_s=5) as odd:
        with pytest.raises(TaskError, match=r"'odd' of the task did not start: it names (an|no) address"):
            async with started(bash, odd):
                pass


async def test_a_stream_whose_end_hangs_leaves_no_directory(bash, watched):
    async def hang(script: str) -> None:
        if script.startswith("over()"):
            await asyncio.Event().wait()

    watched.after = hang
    before = asyncio.all_tasks()
    async with replying(lambda _: http("", "text/event-stream", "404 No"), transport="sse", stays_s=0) as odd:
        with pytest.raises(TaskError, match="HTTP status 404 No"):
            async with started(bash, odd, limits=ServerLimits(close_s=0.3)):
                pass
        assert asyncio.all_tasks() - before == set()
    assert not [home for home in watched.homes if home.exists()]


async def test_headers_that_do_not_get_into_the_sandbox_are_not_waited_for(bash, watched):
    async def upload(source: str, target: str) -> None:
        await asyncio.Event().wait()

    bash.upload_file = upload
    async with replying(complete) as odd, asyncio.timeout(10):
        with pytest.raises(SandboxCommandFailed, match="headers could not be put into the sandbox"):
            async with started(bash, odd, headers={"odd": {"Authorization": TOKEN}}, limits=ServerLimits(start_s=0.5)):
                pass


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
    watched = Watched(host)
    async with listening(transport, TOKEN) as there:
        server, wrong = there.server, f"Bearer {TOKEN}x"
        with pytest.raises(TaskError) as failure:
            async with started(host, server, headers={"weather": {"Authorization": wrong}}, secrets=[wrong]):
                pass
        assert "HTTP status 401" in str(failure.value)
        assert TOKEN not in str(failure.value)
        right = f"Bearer {TOKEN}"
        before = await command_words(host)
        async with started(
            host, server, headers={"weather": {"Authorization": right}}, secrets=[TOKEN, right]
        ) as servers:
            assert await called(servers, "whoami") == "your token is [hidden]"
            homes = " ".join(map(str, watched.homes))
            files = (await host.exec(f"for home in {homes}; do stat -c %a $home/headers; done 2>/dev/null")).stdout
            assert files == "600\n"
            sleeping = asyncio.create_task(called(servers, "sleep", seconds=2))
            visible: list[str] = []
            while server.url not in visible:
                assert not sleeping.done()
                visible = await command_words(host)
            # the server's own command line may be in sight
            assert sum(word.count(TOKEN) for word in visible) == sum(word.count(TOKEN) for word in before)
            assert await sleeping == "awake"
        assert (await host.exec(f"ls -d {homes} 2>/dev/null")).stdout == ""
    assert TOKEN not in caplog.text


async def command_words(environment: SandboxEnvironment) -> list[str]:
    """The words of every command line that a process in the environment can read."""
    return ((await environment.exec("cat /proc/[0-9]*/cmdline | tr '\\0\\n' '\\n '")).stdout or "").split("\n")

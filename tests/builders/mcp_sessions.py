"""MCP servers for tests, started as the agent starts those of a task."""

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.task.config import MCPServerConfig

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.mcp.servers import ServerLimits, TaskServers, task_servers
from drydock.harness.sandbox_access import SandboxAccess

SCRIPT = Path(__file__).with_name("mcp_server.py")
SDK_SCRIPT = Path(__file__).with_name("mcp_sdk_server.py")


def scripted(name: str = "scripted", *options: str, python: str = sys.executable, script: Path | str = SCRIPT):
    """The server of `mcp_server.py` over its standard streams."""
    return MCPServerConfig(name=name, transport="stdio", command=python, args=[str(script), *options])


def started(
    environment: BaseEnvironment,
    *servers: MCPServerConfig,
    timeout_s: float = 20,
    max_output_chars: int = 1000,
    own_tools: Sequence[str] = ("terminal", "finish"),
    headers: Mapping[str, Mapping[str, str]] | None = None,
    secrets: Sequence[str] = (),
    limits: ServerLimits = ServerLimits(),
) -> AbstractAsyncContextManager[TaskServers]:
    """`async with started(environment, server) as servers:`"""
    sandbox = SandboxAccess(environment, timeout_s=timeout_s, max_output_chars=max_output_chars)
    return task_servers(
        servers,
        headers or {},
        secrets,
        environment=environment,
        sandbox=sandbox,
        own_tools=own_tools,
        limits=limits,
    )


async def called(servers: TaskServers, name: str, **arguments: Any) -> str:
    """What the model reads after a call; an answer that counts as an error begins with `error: `."""
    (tool,) = [tool for tool in servers.tools if tool.name == name]
    try:
        return await servers.call(tool, arguments)
    except ToolRefused as refusal:
        return f"error: {refusal}"


@dataclass(slots=True)
class Watched:
    """What an environment was asked to run since it is watched; `after` is awaited with each script that ran."""

    environment: BaseEnvironment
    scripts: list[str] = field(default_factory=list)
    after: Callable[[str], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        run = self.environment.exec

        async def exec_watched(command: str, **options: Any) -> ExecResult:
            self.scripts.append(command)
            done = await run(command, **options)
            if self.after is not None:
                await self.after(command)
            return done

        self.environment.exec = exec_watched

    @property
    def homes(self) -> set[Path]:
        """The directories of the servers that were started."""
        return {Path(found) for script in self.scripts for found in re.findall(r"/tmp/\.mcp-[0-9a-f]{12}", script)}

    def left(self) -> set[Path]:
        """Directories of these servers, and processes that have to do with one."""
        names = [str(home) for home in self.homes]
        found = {home for home in self.homes if home.exists()}
        for process in Path("/proc").glob("[0-9]*") if names else ():
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                opened = [str(link.readlink()) for link in (process / "fd").iterdir()]
            except OSError:
                continue
            if any(name in one for one in (*words, *opened) for name in names):
                found.add(process)
        return found

    async def nothing_is_left(self) -> None:
        """Raises AssertionError where something still is after 2 s."""
        for _ in range(40):
            if not self.left():
                return
            await asyncio.sleep(0.05)
        assert self.left() == set()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@dataclass(frozen=True, slots=True)
class Listening:
    """A server as a task lists it, and its process."""

    server: MCPServerConfig
    process: subprocess.Popen[bytes]


@asynccontextmanager
async def listening(transport: str, *options: str) -> AsyncIterator[Listening]:
    """The server of `mcp_sdk_server.py` on a port of this machine."""
    port = free_port()
    command = [sys.executable, str(SDK_SCRIPT), transport, str(port), *options]
    process = await asyncio.to_thread(subprocess.Popen, command)
    path = "sse" if transport == "sse" else "mcp"
    url = f"http://127.0.0.1:{port}/{path}"
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None
                await asyncio.sleep(0.05)
        yield Listening(
            MCPServerConfig.model_validate({"name": "weather", "transport": transport, "url": url}), process
        )
    finally:
        process.kill()
        process.wait()

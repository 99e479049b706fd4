"""MCP servers for tests, started as the agent starts those of a task."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.task.config import MCPServerConfig

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.mcp.servers import TaskServers, task_servers
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
) -> AbstractAsyncContextManager[TaskServers]:
    """`async with started(environment, server) as servers:`"""
    sandbox = SandboxAccess(environment, timeout_s=timeout_s, max_output_chars=max_output_chars)
    return task_servers(servers, headers or {}, secrets, environment=environment, sandbox=sandbox, own_tools=own_tools)


async def called(servers: TaskServers, name: str, **arguments: Any) -> str:
    """What the model reads after a call; an answer that counts as an error begins with `error: `."""
    (tool,) = [tool for tool in servers.tools if tool.name == name]
    try:
        return await servers.call(tool, arguments)
    except ToolRefused as refusal:
        return f"error: {refusal}"


@dataclass(frozen=True, slots=True)
class Listening:
    """A server as a task lists it, and its process."""

    server: MCPServerConfig
    process: subprocess.Popen[bytes]


@asynccontextmanager
async def listening(transport: str, *options: str) -> AsyncIterator[Listening]:
    """The server of `mcp_sdk_server.py` on a port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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

"""The MCP servers that a task lists, from their start to the last trace of them removed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drydock.errors import TaskError
from drydock.harness.custom_tool import ToolRefused
from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.mcp.curl import Endpoint
from drydock.harness.mcp.failures import McpFailure
from drydock.harness.mcp.hiding import Hiding
from drydock.harness.mcp.json_strings import with_strings
from drydock.harness.mcp.offered_tool import OfferedTool, offered_tools
from drydock.harness.mcp.program import ProgramMissing
from drydock.harness.mcp.session import McpSession
from drydock.harness.mcp.sse import SseTransport
from drydock.harness.mcp.stdio import StdioTransport
from drydock.harness.mcp.streamable_http import StreamableHttpTransport
from drydock.harness.mcp.tool_result import rendered_result
from drydock.harness.mcp.transport import McpTransport
from drydock.harness.observation import cut_middle
from drydock.harness.sandbox_access import CommandTimedOut, SandboxAccess
from drydock.harness.settle import settle
from drydock.harness.tool_schemas import SCHEMAS

if TYPE_CHECKING:
    from harbor.environments.base import BaseEnvironment
    from harbor.models.task.config import MCPServerConfig

log = logging.getLogger(__name__)

CANCEL_LIMIT_S = 3.0
"""How long a closing that took longer may take to let go."""

MAX_FAILURE_CHARS = 4_000
"""Of what a server that does not start is quoted with."""

SHIPPED_NAMES = frozenset(schema["function"]["name"] for schema in SCHEMAS.values())
"""No server's tool gets such a name, whether or not the agent has that tool: the SDK ends a rollout at `finish`."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """start_s: how long a server may take from its start to its list of tools. close_s: the closing of all of them."""

    start_s: float = 30.0
    close_s: float = 15.0


@dataclass(frozen=True, slots=True)
class TaskServers:
    """Servers that run, and what they offer."""

    tools: tuple[OfferedTool, ...]
    _sessions: Mapping[str, McpSession]
    _sandbox: SandboxAccess
    _hide: Hiding

    async def call(self, tool: OfferedTool, arguments: dict[str, Any]) -> str:
        """Call a tool with arguments as the model wrote them; what it answered, for the model to read.

        Raises ToolRefused when the server refuses, reports an error, does not answer or is gone.
        """
        session, limit = self._sessions[tool.server], self._sandbox.max_output_chars
        try:
            result = await session.call(tool.tool, tool.for_the_server(arguments), self._sandbox.timeout_s)
        except McpFailure as error:
            failed = f"[the MCP server {tool.server} failed: {error}]"
            raise ToolRefused(cut_middle(self._hide(failed), limit)) from None
        text, is_error = rendered_result(with_strings(result, self._hide))
        text = cut_middle(self._hide(text), limit)
        if is_error:
            raise ToolRefused(text)
        return text


@asynccontextmanager
async def task_servers(
    servers: Sequence["MCPServerConfig"],
    headers: Mapping[str, Mapping[str, str]],
    secrets: Collection[str],
    *,
    environment: "BaseEnvironment",
    sandbox: SandboxAccess,
    own_tools: Collection[str],
    limits: ServerLimits = ServerLimits(),
) -> AsyncIterator[TaskServers]:
    """Start a task's servers, beside each other, and close them at the end of the block.

    headers: by server, filled in. secrets: what no text may hold. own_tools: their names. Raises
    TaskError when a server does not start, does not speak the protocol or lists what cannot be offered; and
    SandboxCommandFailed.
    """
    hide = Hiding.of(secrets)
    sessions = {
        server.name: McpSession(_transport(server, headers.get(server.name, {}), environment, sandbox, hide))
        for server in servers
    }
    try:
        listed = await _start(sessions, hide, limits.start_s)
        tools = offered_tools([(server.name, listed[server.name]) for server in servers], {*own_tools, *SHIPPED_NAMES})
        yield TaskServers(tuple(tools), sessions, sandbox, hide)
    finally:
        await _close(sessions, limits.close_s)


def _transport(
    server: "MCPServerConfig",
    headers: Mapping[str, str],
    environment: "BaseEnvironment",
    sandbox: SandboxAccess,
    hide: Hiding,
) -> McpTransport:
    if server.transport == "stdio":
        assert server.command is not None
        return StdioTransport(sandbox, [server.command, *server.args], hide)
    assert server.url is not None
    kind = SseTransport if server.transport == "sse" else StreamableHttpTransport
    return kind(Endpoint(server.url, headers), sandbox, environment, hide)


async def _start(sessions: Mapping[str, McpSession], hide: Hiding, limit_s: float) -> dict[str, list[dict[str, Any]]]:
    """Every server's list of tools; raises the first failure when all have been tried."""
    results = await asyncio.gather(
        *(_tools_of(name, session, hide, limit_s) for name, session in sessions.items()), return_exceptions=True
    )
    listed = {}
    for name, result in zip(sessions, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        listed[name] = result
    return listed


async def _tools_of(name: str, session: McpSession, hide: Hiding, limit_s: float) -> list[dict[str, Any]]:
    try:
        return with_strings(await session.open(limit_s), hide)
    except ProgramMissing as error:
        raise TaskError(
            f"the MCP server {name!r} of the task cannot be used: its client needs {error} in the sandbox; add it to "
            "the task's Dockerfile"
        ) from None
    except McpFailure as error:
        why = cut_middle(hide(str(error)), MAX_FAILURE_CHARS)
        raise TaskError(
            f"the MCP server {name!r} of the task did not start: {why}; mend the task's [[environment.mcp_servers]] or "
            "what they start"
        ) from None


async def _close(sessions: Mapping[str, McpSession], limit_s: float) -> None:
    """Close every server, also while the caller is cancelled, which is then passed on."""
    caller = asyncio.current_task()
    assert caller is not None
    cancellations = caller.cancelling()
    closing = asyncio.gather(*(_close_one(name, session) for name, session in sessions.items()))
    if not await settle(closing, limit_s):
        log.warning("MCP servers could not be closed within %g s", limit_s)
        closing.cancel()
        await settle(closing, CANCEL_LIMIT_S)
    if caller.cancelling() > cancellations:
        raise asyncio.CancelledError


async def _close_one(name: str, session: McpSession) -> None:
    """A sandbox that cannot close a server any more is about to go itself."""
    try:
        await session.close()
    except (McpFailure, CommandTimedOut, SandboxCommandFailed) as error:
        log.info("the MCP server %s could not be closed: %s", name, type(error).__name__)

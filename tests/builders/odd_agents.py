"""Agents of a user's own, `module:Class`, that do not end as the default agent does; they call no model."""

import asyncio
import json
import shlex
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class ScriptAgent(BaseAgent):
    """Runs one command in the sandbox and ends without a report; `crash` raises after it, `slow_setup_s` waits."""

    def __init__(
        self,
        *args: Any,
        rollout_id: str,
        command: str = "true",
        crash: str = "",
        slow_setup_s: float = 0,
        **kwargs: Any,
    ) -> None:
        self._command, self._crash, self._slow_setup_s = command, crash, slow_setup_s
        super().__init__(*args, **kwargs)

    @staticmethod
    def name() -> str:
        return "script"

    def version(self) -> str | None:
        return None

    async def setup(self, environment: BaseEnvironment) -> None:
        await asyncio.sleep(self._slow_setup_s)

    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        pass

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await environment.exec(self._command)
        if self._crash:
            raise LookupError(self._crash)


class McpAgent(ScriptAgent):
    """Calls one tool of the task's MCP server, which it starts in the sandbox, and writes down what that answers."""

    capabilities = AgentCapabilities(mcp_servers=True)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        (server,) = self.mcp_servers
        start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "own", "version": "1"}}
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "greet", "arguments": {}}},
        ]
        lines = "".join(f"{json.dumps(call)}\n" for call in calls)
        assert server.command is not None
        command = shlex.join([server.command, *server.args])
        done = await environment.exec(f"printf %s {shlex.quote(lines)} | {command}")
        answers = [json.loads(line) for line in (done.stdout or "").splitlines()]
        text = next(one for one in answers if one["id"] == 2)["result"]["content"][0]["text"]
        await environment.exec(f"printf %s {shlex.quote(text)} > /app/answer.txt")

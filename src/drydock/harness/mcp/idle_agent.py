"""An agent that starts a task's MCP servers as the default agent does, asks for their tools, and does nothing.

For checks of a task, which want to know what every rollout would stumble over.
"""

from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from drydock.harness.mcp.header_values import headers_of
from drydock.harness.mcp.servers import task_servers
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.settings import COMMAND_TIMEOUT_S, MAX_OUTPUT_CHARS

IDLE_AGENT = "drydock.harness.mcp.idle_agent:IdleAgent"


class IdleAgent(BaseAgent):
    """Raises TaskError for servers that cannot be used."""

    capabilities = AgentCapabilities(mcp_servers=True, mcp_http_headers=True)

    def __init__(self, *args: Any, rollout_id: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    @staticmethod
    def name() -> str:
        return "drydock-idle"

    def version(self) -> str | None:
        return None

    async def setup(self, environment: BaseEnvironment) -> None:
        """There is nothing to set up."""

    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        """There are no web tools."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        sandbox = SandboxAccess(environment, timeout_s=COMMAND_TIMEOUT_S, max_output_chars=MAX_OUTPUT_CHARS)
        headers, secrets = headers_of(self)
        async with task_servers(
            self.mcp_servers, headers, secrets, environment=environment, sandbox=sandbox, own_tools=()
        ):
            pass

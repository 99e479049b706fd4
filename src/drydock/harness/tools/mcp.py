"""The tools of a task's MCP servers as tools of the SDK."""

from typing import Any, ClassVar

from pydantic import PrivateAttr

from drydock.harness.mcp.offered_tool import OfferedTool
from drydock.harness.mcp.servers import TaskServers
from drydock.harness.sdk import Action
from drydock.harness.tools.base import DriverTool, TextExecutor, TextObservation


class ServerCallAction(Action):
    """A call whose arguments the server is to judge."""

    call_arguments: dict[str, Any]


class ServerCallWithSummaryAction(ServerCallAction):
    """The same of a tool with an argument `summary`, which the SDK leaves in a call whose action has such a field."""

    summary: Any = None


class ServerCallExecutor(TextExecutor[ServerCallAction]):
    def __init__(self, tool: OfferedTool, servers: TaskServers) -> None:
        self._tool = tool
        self._servers = servers

    async def answer(self, action: ServerCallAction) -> str:
        return await self._servers.call(self._tool, action.call_arguments)


class ServerTool(DriverTool[ServerCallAction, TextObservation]):
    name: ClassVar[Any] = property(lambda tool: tool._offered.name)
    _offered: OfferedTool = PrivateAttr()

    @classmethod
    def bound_to(cls, offered: OfferedTool, servers: TaskServers) -> "ServerTool":
        kind = ServerCallWithSummaryAction if "summary" in offered.arguments else ServerCallAction
        tool = cls.with_schema(offered.schema, kind, TextObservation, ServerCallExecutor(offered, servers))
        tool._offered = offered
        return tool

    def action_from_arguments(self, arguments: dict[str, Any]) -> ServerCallAction:
        return ServerCallAction(call_arguments=arguments)


def server_tools(servers: TaskServers) -> dict[str, ServerTool]:
    """The tools of the servers by the names that the model sees, in their order."""
    return {tool.name: ServerTool.bound_to(tool, servers) for tool in servers.tools}

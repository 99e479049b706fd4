"""The agent's tools, as the SDK's tool objects; names and schemas are in `drydock.harness.tool_schemas`."""

from drydock.harness.tools.base import DriverTool
from drydock.harness.tools.catalog import build_tools
from drydock.harness.tools.mcp import server_tools

__all__ = ["DriverTool", "build_tools", "server_tools"]

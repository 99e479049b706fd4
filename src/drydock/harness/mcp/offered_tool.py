"""The tools of MCP servers as the model sees them: names and schemas, made from what the servers say.

A name is the server's own where that is clear and no other tool has it; otherwise `server_tool`. The schema is the
server's, less what no model needs. Both depend on nothing but the lists of the servers, so all rollouts of a task have
the same, as long as its servers list the same.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from drydock.errors import TaskError
from drydock.harness.custom_tool import without_titles
from drydock.harness.observation import cut_middle

MAX_DESCRIPTION_CHARS = 4_000
MAX_SCHEMA_CHARS = 50_000
"""Of the JSON of a tool's parameters; every turn of a rollout pays for it."""

RENAMED_ARGUMENTS = ("security_risk",)
"""Arguments that the SDK takes for itself; the model sees them with an underscore behind."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """server, tool: whose it is and what the server calls it. renamed: arguments by the model's name for them."""

    server: str
    tool: str
    schema: dict[str, Any]
    renamed: dict[str, str]

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.schema["function"]["name"]

    @property
    def arguments(self) -> Collection[str]:
        """What the model calls its arguments."""
        return self.schema["function"]["parameters"]["properties"]

    def for_the_server(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A call's arguments as the server calls them."""
        return {self.renamed.get(name, name): value for name, value in arguments.items()}


def offered_tools(listed: Sequence[tuple[str, Sequence[dict[str, Any]]]], taken: Collection[str]) -> list[OfferedTool]:
    """The tools of servers, in the order of `listed` (each server's name and its list).

    taken: names of the agent's own tools. Raises TaskError for a tool that cannot be offered.
    """
    owners = [(server, _name_of(server, tool), tool) for server, tools in listed for tool in tools]
    counts = Counter(name for _, name, _ in owners)
    offered: dict[str, OfferedTool] = {}
    for server, name, tool in owners:
        shown = name
        if not _NAME.fullmatch(name) or name in taken or counts[name] > 1:
            shown = f"{_NO_NAME.sub('_', server)}_{_NO_NAME.sub('_', name)}"
        if not _NAME.fullmatch(shown) or shown in taken or shown in offered or (shown != name and shown in counts):
            raise TaskError(
                f"the tool {name!r} of the MCP server {server!r} cannot be offered: neither its name nor {shown!r} is "
                "one that a model can call (64 letters, digits, - and _) and that no other tool has; rename it, or "
                "the server in [[environment.mcp_servers]]"
            )
        offered[shown] = _offered(server, name, shown, tool)
    return list(offered.values())


def _name_of(server: str, tool: dict[str, Any]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise TaskError(f"the MCP server {server!r} lists a tool without a name")
    return name


def _offered(server: str, name: str, shown: str, tool: dict[str, Any]) -> OfferedTool:
    given = tool.get("inputSchema")
    parameters = without_titles(given) if isinstance(given, dict) else {}
    parameters = {key: value for key, value in parameters.items() if key != "$schema"}
    properties = parameters.get("properties")
    if not isinstance(properties, dict) or parameters.get("type", "object") != "object":
        if properties is not None or parameters.get("type", "object") != "object":
            raise TaskError(f"the tool {name!r} of the MCP server {server!r} has parameters that are no object")
        properties = {}
    renamed = {_free_name(argument, properties): argument for argument in RENAMED_ARGUMENTS if argument in properties}
    shown_as = {argument: new for new, argument in renamed.items()}
    parameters["type"] = "object"
    parameters["properties"] = {shown_as.get(key, key): value for key, value in properties.items()}
    if isinstance(parameters.get("required"), list):
        parameters["required"] = [shown_as.get(key, key) for key in parameters["required"] if isinstance(key, str)]
    size = len(json.dumps(parameters))
    if size > MAX_SCHEMA_CHARS:
        raise TaskError(
            f"the tool {name!r} of the MCP server {server!r} has a schema of {size} characters; at most "
            f"{MAX_SCHEMA_CHARS} are offered to a model"
        )
    described = tool.get("description")
    description = cut_middle(described.strip(), MAX_DESCRIPTION_CHARS) if isinstance(described, str) else ""
    function = {"name": shown, "description": description, "parameters": parameters}
    return OfferedTool(server, name, {"type": "function", "function": function}, renamed)


def _free_name(argument: str, properties: Collection[str]) -> str:
    name = f"{argument}_"
    while name in properties:
        name += "_"
    return name

"""The tools as the model sees them: names and chat-completions schemas, written down once.

Short on purpose (each rollout pays their tokens) and free of heavy imports, because whoever builds training
conversations needs exactly the same entries that the agent sends.
"""

from collections.abc import Sequence
from typing import Any

from drydock.errors import ConfigError


def _function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TASK_STATUSES = ("todo", "in_progress", "done")

SCHEMAS: dict[str, dict[str, Any]] = {
    "terminal": _function(
        "terminal",
        "Run a shell command in the sandbox. The working directory is kept between calls.",
        {"command": {"type": "string"}},
        ["command"],
    ),
    "task_tracker": _function(
        "task_tracker",
        "Keep a task list: `plan` replaces it, `view` shows it.",
        {
            "command": {"type": "string", "enum": ["view", "plan"]},
            "task_list": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "notes": {"type": "string"},
                        "status": {"type": "string", "enum": list(TASK_STATUSES)},
                    },
                    "required": ["title"],
                },
            },
        },
        ["command"],
    ),
    "finish": _function("finish", "End the work on the task.", {"message": {"type": "string"}}, []),
}

TOOL_NAMES = tuple(SCHEMAS)


def check_tool_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` as given; raises ConfigError for an unknown, doubled or missing name."""
    for name in names:
        if name not in SCHEMAS:
            raise ConfigError(f"unknown tool {name!r}; the agent can be given: {', '.join(TOOL_NAMES)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"the tool list {list(names)} names a tool twice")
    if not names:
        raise ConfigError(f"the tool list is empty; give at least one of: {', '.join(TOOL_NAMES)}")
    return tuple(names)


def tool_schemas(names: Sequence[str]) -> list[dict[str, Any]]:
    """The `tools` entry of every chat call of an agent that has the tools `names`, in that order."""
    return [SCHEMAS[name] for name in check_tool_names(names)]

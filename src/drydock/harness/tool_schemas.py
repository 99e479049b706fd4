"""The tools as the model sees them: names and chat-completions schemas, written down once.

Short on purpose (each rollout pays their tokens) and free of heavy imports, because whoever builds training
conversations needs exactly the same entries that the agent sends.

A tool is chosen by its key here, or as `module:Class` (see `custom_tool.py`). The model sees the name in the schema:
`persistent_terminal` is another tool that the model knows as `terminal`.
"""

from collections.abc import Sequence
from typing import Any

from drydock.errors import ConfigError
from drydock.harness.custom_tool import custom_tool_class, custom_tool_schema


def _function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


EDITOR_COMMANDS = ("view", "create", "str_replace", "insert", "undo_edit")
TASK_STATUSES = ("todo", "in_progress", "done")

SCHEMAS: dict[str, dict[str, Any]] = {
    "terminal": _function(
        "terminal",
        "Run a shell command in the sandbox. The working directory is kept between calls.",
        {"command": {"type": "string"}},
        ["command"],
    ),
    "persistent_terminal": _function(
        "terminal",
        "Run a shell command in the sandbox. All run in one shell: directory, variables and background jobs stay.",
        {"command": {"type": "string"}},
        ["command"],
    ),
    "file_editor": _function(
        "file_editor",
        "View, create and edit text files. `view` shows a file with line numbers, or a directory. `create` writes a "
        "new file. `str_replace` replaces the only place where `old_str` stands. `insert` puts `new_str` after line "
        "`insert_line` (0: at the start). `undo_edit` takes back the last edit of the file.",
        {
            "command": {"type": "string", "enum": list(EDITOR_COMMANDS)},
            "path": {"type": "string", "description": "absolute path"},
            "file_text": {"type": "string"},
            "old_str": {"type": "string"},
            "new_str": {"type": "string"},
            "insert_line": {"type": "integer"},
            "view_range": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "first and last line, -1: to the end",
            },
        },
        ["command", "path"],
    ),
    "think": _function("think", "Write down a thought. Nothing is run.", {"thought": {"type": "string"}}, ["thought"]),
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
"""Tools that come with Drydock, by the key they are chosen by."""

DEFAULT_TOOLS = ("terminal", "task_tracker", "finish")


def check_tool_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` as given.

    Raises ConfigError for an unknown name, a custom tool that cannot be used, two tools with one name, or no tool.
    """
    seen = [visible_name(name) for name in names]
    if len(set(seen)) != len(seen):
        raise ConfigError(f"the tool list {list(names)} names a tool twice (the model sees: {', '.join(seen)})")
    if not names:
        raise ConfigError(f"the tool list is empty; give at least one of: {', '.join(TOOL_NAMES)}")
    return tuple(names)


def visible_name(name: str) -> str:
    """What the model calls the tool that is chosen as `name`."""
    return schema_of(name)["function"]["name"]


def schema_of(name: str) -> dict[str, Any]:
    """The schema of one tool, the same object every time; callers do not change it. Raises ConfigError."""
    if ":" in name:
        schema = custom_tool_schema(custom_tool_class(name))
        if schema["function"]["name"] in SCHEMAS:
            raise ConfigError(
                f"the tool {name} calls itself {schema['function']['name']!r}, the name of a shipped tool"
            )
        return schema
    if name not in SCHEMAS:
        raise ConfigError(f"unknown tool {name!r}; the agent can be given: {', '.join(TOOL_NAMES)}, or module:Class")
    return SCHEMAS[name]


def tool_schemas(names: Sequence[str]) -> list[dict[str, Any]]:
    """The `tools` entry of every chat call of an agent that has the tools `names`, in that order."""
    return [schema_of(name) for name in check_tool_names(names)]

"""The agent as the published recipes name it in the environment.

HARBOR_AGENT (`module:Class`), HARBOR_SKILL (paths joined by `:`), OPENHANDS_TOOLS (names joined by commas) and
OPENHANDS_SYSTEM_PROMPT_FILE. A configuration that says something of its own about the same thing wins.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drydock.training.rollout_config import AgentConfig


def read_agent_variables(agent: AgentConfig, variables: Mapping[str, str]) -> None:
    """Complete `agent` from the environment variables; relative paths are of the working directory."""
    for name, key, value in _given(variables):
        if variables.get(name, "").strip() and key not in agent.model_fields_set:
            setattr(agent, key, value)


def _given(variables: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """Variable, key of the configuration, and its value."""
    text = {name: variables.get(name, "").strip() for name in ("HARBOR_AGENT", "OPENHANDS_SYSTEM_PROMPT_FILE")}
    return [
        ("HARBOR_AGENT", "import_path", text["HARBOR_AGENT"]),
        ("HARBOR_SKILL", "skills", [Path(one).absolute() for one in _parts(variables, "HARBOR_SKILL", ":")]),
        ("OPENHANDS_TOOLS", "tools", _parts(variables, "OPENHANDS_TOOLS", ",")),
        (
            "OPENHANDS_SYSTEM_PROMPT_FILE",
            "system_prompt_file",
            Path(text["OPENHANDS_SYSTEM_PROMPT_FILE"]).absolute(),
        ),
    ]


def _parts(variables: Mapping[str, str], name: str, separator: str) -> list[str]:
    return [part.strip() for part in variables.get(name, "").split(separator) if part.strip()]

"""What a user can set about the agent."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from drydock.harness.tool_schemas import DEFAULT_TOOLS, check_tool_names

AGENT_CLASS = "drydock.harness.openhands:OpenHandsAgent"
"""The agent that these settings are for, as Harbor imports it."""

COMMAND_TIMEOUT_S = 30.0
MAX_OUTPUT_CHARS = 16_000
"""Defaults of the settings of these names, here and in a run's configuration."""

LEAST_OUTPUT_CHARS = 100
"""Less would not hold the note that says how much is missing."""


class HarnessSettings(BaseModel):
    """Settings of the OpenHands agent; plain data, written into Harbor's files, never a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: tuple[str, ...] = DEFAULT_TOOLS
    """Tools offered to the model, in this order: terminal or persistent_terminal, file_editor, think, task_tracker,
    finish, or `module:Class` for one of your own."""

    system_prompt_file: Path | None = None
    """File with the system prompt; a name ending in .j2 is rendered by Jinja, with `tools` and `max_turns`. Default: a
    short one."""

    skills: tuple[Path, ...] = ()
    """SKILL.md files, or folders with one, that are listed in the prompt and put into the sandbox."""

    max_turns: int = Field(default=30, ge=1)
    """Assistant turns a rollout may take."""

    max_sampled_tokens: int | None = Field(default=None, ge=1)
    """Tokens a rollout may sample in all its turns; looked at before each turn. Default: no limit."""

    max_seconds: float | None = Field(default=None, gt=0)
    """Seconds after which no further turn is begun. Default: no limit but the rollout's deadline, which cuts it off."""

    condense_after_events: int | None = Field(default=None, ge=10)
    """Events of the conversation (messages, calls, results) after which the policy is asked to sum the older half up.
    Default: never."""

    command_timeout_s: float = Field(default=COMMAND_TIMEOUT_S, gt=0)
    """Longest a single command may run in the sandbox, in seconds."""

    max_output_chars: int = Field(default=MAX_OUTPUT_CHARS, ge=LEAST_OUTPUT_CHARS)
    """Characters of a command's output shown to the model; more is cut out of the middle."""

    call_timeout_s: float = Field(default=600.0, gt=0)
    """Longest the agent waits for one reply of the model, in seconds."""

    transport: Literal["direct", "litellm"] = "direct"
    """How chat calls are sent: straight to the proxy in this process, or through litellm and HTTP as the SDK ships it.
    Requests and replies are the same; litellm takes about twice the driver's CPU per rollout."""

    @field_validator("tools")
    @classmethod
    def _known_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return check_tool_names(names)

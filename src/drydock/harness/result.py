"""How the agent's part of a rollout ended, as it travels through Harbor's result.

Harbor keeps one free-form dictionary per agent run (`AgentContext.metadata`); `HarnessResult` is the typed content of
it. Token data is deliberately absent: the chat proxy records it, and Harbor would copy it into several files.
"""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

METADATA_KEY = "drydock"

Limit = Literal["turns", "tokens", "seconds", "turn_length"]
"""Which limit of the agent ended a rollout; `turn_length`: its closing text was cut off in the middle."""


class End(StrEnum):
    """Why the agent stopped; `turns_exhausted` is any of its limits (see `HarnessResult.limit`)."""

    FINISH_TOOL = "finish_tool"
    FINAL_TEXT = "final_text"
    TURNS_EXHAUSTED = "turns_exhausted"
    CONTEXT_FULL = "context_full"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class HarnessResult(BaseModel):
    """What the agent reports about its own run.

    turns: sampled assistant turns, the last one included.
    tool_calls: calls that were executed; calls the harness refused (unknown tool, bad arguments) are `refused_calls`.
    limit: for `TURNS_EXHAUSTED`, which limit it was. sampled_tokens: over all turns, as the endpoint reported them.
    error: for `FAILED`, the failure in one line.
    """

    model_config = ConfigDict(extra="forbid")

    rollout_id: str
    end: End
    turns: int = 0
    tool_calls: int = 0
    refused_calls: int = 0
    sampled_tokens: int = 0
    limit: Limit | None = None
    error: str | None = None

    @property
    def submitted(self) -> bool:
        """Whether the agent declared the task done, by the finish tool or by a closing text."""
        return self.end in (End.FINISH_TOOL, End.FINAL_TEXT)

    def to_metadata(self) -> dict[str, Any]:
        return {METADATA_KEY: self.model_dump(mode="json")}

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any] | None) -> "HarnessResult | None":
        """Read back what `to_metadata` wrote; None when another agent ran, or none did."""
        if not metadata or METADATA_KEY not in metadata:
            return None
        return cls.model_validate(metadata[METADATA_KEY])

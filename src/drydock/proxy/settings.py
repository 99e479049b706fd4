"""Settings of a chat proxy, fixed for its life."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from drydock.wire.rest import SamplingParams


class ProxySettings(BaseModel):
    """How turns are sampled and where they are written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampling: SamplingParams = Field(default_factory=SamplingParams)
    """Sampling of every turn; wins over what the agent sends. Its `max_tokens` is not used (see `max_new_tokens`).
    A `seed` is the root from which each turn gets its own."""

    context_tokens: int = Field(ge=2)
    """Longest prompt and turn together, in tokens."""

    max_new_tokens: int = Field(ge=1)
    """Longest turn, in tokens; the agent may ask for less."""

    call_deadline_s: float = Field(default=600.0, gt=0)
    """Longest wait for one sampled turn, in seconds."""

    max_concurrent_calls: int = Field(default=256, ge=1)
    """How many calls of all rollouts together are at the sampler at the same time; others wait for a place, rollouts
    taking turns."""

    admission_deadline_s: float = Field(default=600.0, gt=0)
    """Longest wait for a place at the sampler, in seconds; a rollout whose call waited longer is a sampler error."""

    thinking: Literal["keep", "template"] = "keep"
    """What becomes of the policy's thinking in later prompts. `keep`: it stays as it was sampled. `template`: where the
    chat template hides the thinking of earlier turns, the next user message starts a branch that is rendered so."""

    turn_log: Path | None = None
    """Folder for the turn logs of rollouts that were opened without a record path of their own."""

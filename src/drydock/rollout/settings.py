"""What holds for all rollouts of a run."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from drydock.harness.settings import AGENT_CLASS
from drydock.rollout.outcome import Unsubmitted
from drydock.rollout.reward import RewardRule

SANDBOXES = {
    "local": "drydock.sandbox.local:LocalEnvironment",
    "host": "drydock.sandbox.host:HostEnvironment",
}


class RolloutDeadlines(BaseModel):
    """Longest a phase of one rollout may take, in seconds; each ends the rollout with an outcome of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sandbox_start_s: float = Field(default=600.0, gt=0)
    """The sandbox to start, its image built if need be. A task's own shorter limit wins."""

    agent_setup_s: float = Field(default=60.0, gt=0)
    """The agent to be set up in the sandbox."""

    agent_s: float = Field(default=1200.0, gt=0)
    """The agent to work on the task, or on each of its steps. A task's or step's own shorter limit wins."""

    verifier_s: float = Field(default=600.0, gt=0)
    """The verifier to grade. A task's own shorter limit wins."""

    cleanup_s: float = Field(default=30.0, gt=0)
    """The sandbox to be removed, also after a cancellation."""

    total_s: float | None = Field(default=None, gt=0)
    """The whole rollout. Default: the sum of the above."""

    @property
    def overall_s(self) -> float:
        """Of a task without steps."""
        return self.overall_for(1)

    def overall_for(self, steps: int) -> float:
        """The whole rollout of a task with so many steps, in each of which the agent works and the verifier grades."""
        once = self.sandbox_start_s + self.agent_setup_s + self.cleanup_s
        return self.total_s if self.total_s is not None else once + steps * (self.agent_s + self.verifier_s)


class RolloutSettings(BaseModel):
    """Agent, sandbox, grading and limits of every rollout of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: str = AGENT_CLASS
    """The agent, `module:Class`, or the name of one of Harbor's."""

    agent_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The agent's settings (for the default agent, those of HarnessSettings); never a secret."""

    environment: str = "local"
    """The sandbox: `local`, `host` (trusted tasks only), a name of Harbor's, or `module:Class`."""

    environment_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The environment's settings, such as `state_dir`."""

    pass_env: tuple[str, ...] = ()
    """Environment variables of the driver that tasks may read; a task that asks for another one is refused."""

    reward: RewardRule = RewardRule()
    """How the reward is made of the numbers that the verifier leaves."""

    unsubmitted: Unsubmitted = "mask"
    """A rollout that ran out of turns or context: `mask` leaves it out, `grade` takes its verifier's reward."""

    deadlines: RolloutDeadlines = RolloutDeadlines()

    work_dir: Path | None = None
    """Where Harbor's trial directories are made. Default: the system's directory for temporary files."""

    keep_trials: Literal["never", "failed", "always"] = "never"
    """Which trial directories to keep for a look at Harbor's own files."""

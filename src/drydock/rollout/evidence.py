"""What an outcome rests on, kept with the trajectory so that it can be judged without running anything again."""

from pydantic import BaseModel, ConfigDict

from drydock.harness.result import End
from drydock.rollout.outcome import Phase


class Evidence(BaseModel):
    """phase, exception: where the trial failed and with which class of exception; None when nothing was raised.

    agent_end: how the agent says that it ended, None for an agent that says nothing. sampling_s: seconds in which it
    waited for the policy. sampler_error: what the sampler said when it failed.
    verifier_output: the end of what the verifier printed, kept only when it left no reward.
    shard_log: the end of what the rollout's shard printed, kept only when the shard died.
    """

    model_config = ConfigDict(extra="forbid")

    phase: Phase | None = None
    exception: str | None = None
    agent_end: End | None = None
    sampling_s: float = 0.0
    sampler_error: str | None = None
    verifier_output: str = ""
    shard_log: str = ""

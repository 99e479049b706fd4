"""One real trial with an agent that does nothing, before anything expensive is started.

It finds what would otherwise fail in every rollout: a sandbox that cannot start, a Dockerfile that cannot be replayed,
an MCP server that does not start, a verifier that cannot run or leaves no reward.
"""

from pathlib import Path

from pydantic import BaseModel

from drydock import errors
from drydock.errors import Blame, DrydockError, SandboxError, TaskError, VerifierError
from drydock.harness.mcp.idle_agent import IDLE_AGENT
from drydock.harness.settings import AGENT_CLASS
from drydock.rollout.outcome import Outcome, blame_of_failure, outcome_of_failure
from drydock.rollout.reward import read_reward
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.task_folder import lists_mcp_servers
from drydock.rollout.trial import TrialEnd, run_trial

NOP = "nop"
"""Harbor's agent that does nothing."""


class PreflightReport(BaseModel):
    """A task that works: what doing nothing earns, and how long each phase took (seconds)."""

    task: str
    reward: float
    rewards: dict[str, float]
    timings: dict[str, float]


def idle_agent(task_path: Path) -> str:
    """The agent that does nothing to a task, but for starting the MCP servers that it lists."""
    return IDLE_AGENT if lists_mcp_servers(task_path) else NOP


async def preflight_task(task_path: Path, settings: RolloutSettings) -> PreflightReport:
    """Start the task's sandbox and, for the default agent, its MCP servers; do nothing in it, grade it.

    Raises TaskError (VerifierError for the grading) when the task is at fault and SandboxError when the sandbox is.
    """
    spec = RolloutSpec(task=task_path.name, task_path=task_path, step=0, split="train", repetition=0)
    idle = idle_agent(task_path) if settings.agent == AGENT_CLASS else NOP
    end = await run_trial(spec, settings.model_copy(update={"agent": idle, "agent_kwargs": {}}))
    if end.failure is not None:
        raise error_of_trial(task_path, end)
    reward, problem = read_reward(end.rewards, settings.reward)
    if problem is not None or reward is None:
        raise VerifierError(f"{task_path}: {problem}{_printed(end)}")
    return PreflightReport(task=spec.task, reward=reward, rewards=end.rewards or {}, timings=end.timings)


def error_of_trial(task_path: Path, end: TrialEnd) -> DrydockError:
    """What to raise for a trial that failed; it names the task, the cause and what the verifier printed."""
    assert end.failure is not None
    said = end.failure.message or end.failure.name
    cause = said if said.startswith(str(task_path)) else f"{task_path}: {said}"
    own = getattr(errors, end.failure.name, None)
    if isinstance(own, type) and issubclass(own, errors.UserError | errors.TaskError | errors.SandboxError):
        return own(cause)
    outcome = outcome_of_failure(end.failure)
    if outcome is Outcome.VERIFIER_ERROR:
        return VerifierError(f"the verifier failed: {task_path}: {end.failure}{_printed(end)}")
    if outcome is Outcome.SANDBOX_ERROR and blame_of_failure(end.failure, outcome) is not Blame.TASK:
        return SandboxError(f"the sandbox failed: {task_path}: {end.failure}")
    return TaskError(f"the task cannot be run: {task_path}: {end.failure}")


def _printed(end: TrialEnd) -> str:
    return f"\nthe verifier printed:\n{end.verifier_output}" if end.verifier_output else ""

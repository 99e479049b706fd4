"""Why a task is not fit for training: who has to act, what was seen, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from drydock.errors import Blame, DrydockError, SandboxError, TaskError, VerifierError

_SAME = 1e-9

_OF_FAILURE = {
    "AgentTimeoutError": "make solution/solve.sh quicker, or raise timeout_sec in [agent] (and deadlines.agent_s)",
    "VerifierTimeoutError": "make tests/test.sh quicker, or raise timeout_sec in [verifier] (and deadlines.verifier_s)",
    "EnvironmentStartTimeoutError": "raise build_timeout_sec in [environment] (and deadlines.sandbox_start_s), or make "
    "the Dockerfile quicker",
    "HealthcheckError": "let the command of [environment.healthcheck] start what it looks for (a sandbox runs no CMD), "
    "or give it more time or retries",
}
"""Remedies by the name of the exception that ended a trial."""

_OF_ERROR: dict[type[DrydockError], str] = {
    VerifierError: "let tests/test.sh write a number, and nothing else, to /logs/verifier/reward.txt (or an object of "
    "numbers to reward.json) however it ends, also when what it looks for is missing",
    TaskError: "mend what is named; where a RUN line needs packages from the network, add "
    "sandbox.kwargs.allow_network=true",
    SandboxError: "check again; `drydock sandbox check` says what this machine lacks",
}


@dataclass(frozen=True, slots=True)
class Graded:
    """One graded trial: its reward, seconds by phase, and the end of what solution and verifier printed."""

    reward: float
    timings: dict[str, float]
    printed: str


class Fault(BaseModel):
    """One reason for which a task is not fit."""

    blame: Blame
    what: str
    remedy: str


def of_file(flaw: str) -> Fault:
    """The fault that is a flaw of a file of the task (`task_folder.flaws_of`)."""
    return Fault(blame=Blame.TASK, what=flaw, remedy="mend the file; docs/tasks.md says how a task looks")


def of_error(error: DrydockError, doing: str, failure: str = "") -> Fault:
    """The fault that ended a trial. doing: which trial, for the reader. failure: name of Harbor's exception."""
    general = next((text for kind, text in _OF_ERROR.items() if isinstance(error, kind)), "see the message")
    return Fault(blame=error.blame, what=f"{doing}: {error}", remedy=_OF_FAILURE.get(failure, general))


def of_rewards(*, nothing: Sequence[Graded], solution: Sequence[Graded], baseline: float, full: float) -> list[Fault]:
    """What the rewards of the runs of doing nothing and of the solution say against a task."""
    faults = []
    if full <= baseline:
        faults.append(
            _of_task(
                f"the full reward ({full:g}) is not above what doing nothing earns ({baseline:g}): there is nothing to "
                "learn",
                "set full_reward and baseline_reward in [metadata] of task.toml to what they are",
            )
        )
    for name, runs, wanted, key, mend in (
        ("doing nothing", nothing, baseline, "baseline_reward", "let the verifier reward only what the agent did"),
        ("the solution", solution, full, "full_reward", "mend solution/solve.sh or tests/test.sh"),
    ):
        rewards = [run.reward for run in runs]
        if not runs:
            continue
        if max(rewards) - min(rewards) > _SAME:
            faults.append(
                _of_task(
                    f"the verifier is not stable: {name} earned {', '.join(f'{reward:g}' for reward in rewards)}; "
                    f"of the run with the least:{_shown(min(runs, key=lambda run: run.reward))}",
                    "make the verifier (or the solution) deterministic: seed what is random, wait for services "
                    "instead of sleeping, do not reward measured times",
                )
            )
        elif abs(rewards[0] - wanted) > _SAME:
            faults.append(
                _of_task(
                    f"{name} earns {rewards[0]:g}, not {wanted:g}{_shown(runs[0])}",
                    f"{mend}, or state {key} in [metadata] of task.toml",
                )
            )
    return faults


def no_solution(folder: str) -> Fault:
    """The fault of a task that cannot be shown to be solvable."""
    return _of_task(
        f"{folder}: there is no solution/solve.sh (in a task of steps: steps/<name>/solution/solve.sh)",
        "write one: without it nobody knows that the task can be solved",
    )


def _of_task(what: str, remedy: str) -> Fault:
    return Fault(blame=Blame.TASK, what=what, remedy=remedy)


def _shown(run: Graded) -> str:
    return run.printed or "\nnothing was printed"

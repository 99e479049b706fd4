"""How a rollout ended: exactly one outcome each, decided here and nowhere else.

Harbor has a table that says by the *name* of an exception class whether a reward counts, and counts the reward of
every name it does not know. For training that is poison: a crashed endpoint would become reward 0. So Harbor's verdict
is ignored; what counts is in which phase of the trial something failed, what the agent reported about its own end, what
the chat proxy recorded, and whether the verifier left a finite number under the reward key.

A reward is only ever trained with the outcome `graded`, or with `turns_exhausted` and `context_full` when the run's
setting says so; with every other outcome there is no reward at all, not reward 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from drydock.errors import Blame, TaskError, VerifierError
from drydock.harness.result import End, HarnessResult


class Phase(StrEnum):
    """Where in its life a trial was."""

    PREPARATION = "preparation"
    SANDBOX = "sandbox"
    AGENT_SETUP = "agent_setup"
    AGENT = "agent"
    VERIFIER = "verifier"
    CLEANUP = "cleanup"


class Outcome(StrEnum):
    """The nine ways a rollout can end."""

    GRADED = "graded"
    TURNS_EXHAUSTED = "turns_exhausted"
    CONTEXT_FULL = "context_full"
    AGENT_TIMEOUT = "agent_timeout"
    VERIFIER_ERROR = "verifier_error"
    SANDBOX_ERROR = "sandbox_error"
    HARNESS_ERROR = "harness_error"
    SAMPLER_ERROR = "sampler_error"
    CANCELLED = "cancelled"

    @property
    def is_failure(self) -> bool:
        """Whether something broke, as opposed to the policy having used up its turns or context."""
        return self not in (Outcome.GRADED, Outcome.TURNS_EXHAUSTED, Outcome.CONTEXT_FULL)


BLAME: dict[Outcome, Blame | None] = {
    Outcome.GRADED: None,
    Outcome.TURNS_EXHAUSTED: Blame.MODEL,
    Outcome.CONTEXT_FULL: Blame.MODEL,
    Outcome.AGENT_TIMEOUT: Blame.MODEL,
    Outcome.VERIFIER_ERROR: Blame.TASK,
    Outcome.SANDBOX_ERROR: Blame.INFRASTRUCTURE,
    Outcome.HARNESS_ERROR: Blame.HARNESS,
    Outcome.SAMPLER_ERROR: Blame.INFRASTRUCTURE,
    Outcome.CANCELLED: Blame.USER,
}

_TASK_ERRORS = frozenset({TaskError.__name__, VerifierError.__name__})
"""Failures that are the task's in whatever phase: a Dockerfile that fails, a variable that it may not read."""

Unsubmitted = Literal["mask", "grade"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of the trial: in which phase, of which class (its name), and what it said."""

    phase: Phase
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with its reward (None when masked) and, when something broke, why and whose fault it is."""

    outcome: Outcome
    reward: float | None = None
    error: str | None = None
    task_at_fault: bool = False

    @property
    def blame(self) -> Blame | None:
        """Who has to act: the outcome says so, unless the error was raised as the task's."""
        return Blame.TASK if self.task_at_fault else BLAME[self.outcome]


def classify(
    *,
    failure: Failure | None,
    harness: HarnessResult | None,
    rewards: Mapping[str, float] | None,
    sampler_error: str | None,
    context_full: bool,
    reward_key: str,
    unsubmitted: Unsubmitted,
) -> Verdict:
    """Decide a rollout's outcome.

    failure: the first exception of the trial. harness: the agent's report (None for agents that make none, which then
    count as having submitted). rewards: what the verifier left. sampler_error, context_full: from the proxy's record.
    """
    if failure is not None and failure.phase is not Phase.CLEANUP:
        outcome = outcome_of_failure(failure, sampler_error)
        return Verdict(outcome, error=str(failure), task_at_fault=failure.name in _TASK_ERRORS)
    end = harness.end if harness is not None else End.FINISH_TOOL
    if end in (End.TURNS_EXHAUSTED, End.CONTEXT_FULL) or (harness is None and context_full):
        outcome = Outcome.TURNS_EXHAUSTED if end is End.TURNS_EXHAUSTED else Outcome.CONTEXT_FULL
        if unsubmitted == "mask":
            return Verdict(outcome)
    elif end in (End.FAILED, End.INTERRUPTED):
        outcome = Outcome.SAMPLER_ERROR if sampler_error else Outcome.HARNESS_ERROR
        return Verdict(outcome, error=harness.error if harness else None)
    else:
        outcome = Outcome.GRADED
    reward, problem = read_reward(rewards, reward_key)
    if problem is not None:
        return Verdict(Outcome.VERIFIER_ERROR, error=f"{problem} ({failure})" if failure else problem)
    return Verdict(outcome, reward=reward)


def outcome_of_failure(failure: Failure, sampler_error: str | None = None) -> Outcome:
    """The outcome of a trial that was ended by an exception."""
    match failure.name:
        case "CancelledError":
            return Outcome.CANCELLED
        case "PolicyCallFailed":
            return Outcome.SAMPLER_ERROR
        case "SandboxCommandFailed" | "AddTestsDirError" | "DownloadVerifierDirError" | "EnvironmentStartTimeoutError":
            return Outcome.SANDBOX_ERROR
        case "AgentTimeoutError":
            return Outcome.AGENT_TIMEOUT
    match failure.phase:
        case Phase.PREPARATION | Phase.AGENT_SETUP:
            return Outcome.HARNESS_ERROR
        case Phase.SANDBOX:
            return Outcome.SANDBOX_ERROR
        case Phase.VERIFIER:
            return Outcome.VERIFIER_ERROR
        case _:
            if failure.name == "DeadlineExceeded":
                return Outcome.AGENT_TIMEOUT
            return Outcome.SAMPLER_ERROR if sampler_error else Outcome.HARNESS_ERROR


def read_reward(rewards: Mapping[str, float] | None, key: str) -> tuple[float | None, str | None]:
    """The reward under `key`, or what is wrong with it."""
    if not rewards:
        return None, "the verifier left no reward"
    if key not in rewards:
        return None, f"the verifier left no reward named {key!r} (it left: {', '.join(sorted(rewards))})"
    value = float(rewards[key])
    if not math.isfinite(value):
        return None, f"the verifier's reward {key!r} is {value}"
    return value, None

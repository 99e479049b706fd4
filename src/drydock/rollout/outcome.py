"""How a rollout ended: exactly one outcome each, decided here and nowhere else.

Harbor has a table that says by the *name* of an exception class whether a reward counts, and counts the reward of
every name it does not know. For training that is poison: a crashed endpoint would become reward 0. So Harbor's verdict
is ignored; what counts is in which phase of the trial something failed, what the agent reported about its own end, what
the chat proxy recorded, and whether the verifier left a reward that the run's rule accepts.

A reward is only ever trained with the outcome `graded`, or with `turns_exhausted` and `context_full` when the run's
setting says so; with every other outcome there is no reward at all, not reward 0.

The outcome says what broke; the blame says who has to act. They differ where one thing breaks for several reasons: a
sandbox that does not start may be the machine's fault or the task's, whose Dockerfile fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from drydock.errors import Blame, ConfigError, SandboxUnavailable, TaskError, TemplateError, UserError, VerifierError
from drydock.harness.result import End, HarnessResult
from drydock.rollout.reward import RewardRule, read_reward


class Phase(StrEnum):
    """Where in its life a trial was."""

    PREPARATION = "preparation"
    SANDBOX = "sandbox"
    AGENT_SETUP = "agent_setup"
    STEP_SETUP = "step_setup"
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

_BLAMED_BY_NAME: dict[str, Blame] = {
    **{error.__name__: Blame.TASK for error in (TaskError, VerifierError)},
    **{error.__name__: Blame.USER for error in (UserError, ConfigError, SandboxUnavailable, TemplateError)},
    "HealthcheckError": Blame.TASK,
    "SandboxBuildFailedError": Blame.TASK,
    "StepSetupFailed": Blame.TASK,
}
"""Failures whose blame is the same in whatever phase; the last three are Harbor's and `trial_phases`'."""

_SANDBOX_FAILURES = frozenset(
    {
        "SandboxError",
        "SandboxCommandFailed",
        "AddTestsDirError",
        "DownloadVerifierDirError",
        "EnvironmentStartTimeoutError",
        "SandboxLikelyOutOfMemoryError",
    }
)
"""Failures of the sandbox in whatever phase it is used."""

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
    """An outcome with its reward (None when masked) and, when something broke, why and who has to act."""

    outcome: Outcome
    reward: float | None = None
    error: str | None = None
    blame: Blame | None = None


def classify(
    *,
    failure: Failure | None,
    harness: HarnessResult | None,
    rewards: Mapping[str, float] | None,
    sampler_error: str | None,
    context_full: bool,
    rule: RewardRule,
    unsubmitted: Unsubmitted,
    turns: int = 1,
) -> Verdict:
    """Decide a rollout's outcome.

    failure: the first exception of the trial. harness: the agent's report (None for agents that make none, which then
    count as having submitted). rewards: what the verifier left. sampler_error, context_full, turns: from the proxy's
    record; turns is how many were sampled.
    """
    if failure is not None and failure.phase is not Phase.CLEANUP:
        outcome = outcome_of_failure(failure, sampler_error)
        return Verdict(outcome, error=str(failure), blame=blame_of_failure(failure, outcome, turns))
    end = harness.end if harness is not None else End.FINISH_TOOL
    if end in (End.TURNS_EXHAUSTED, End.CONTEXT_FULL) or (harness is None and context_full):
        outcome = Outcome.TURNS_EXHAUSTED if end is End.TURNS_EXHAUSTED else Outcome.CONTEXT_FULL
        if unsubmitted == "mask":
            return Verdict(outcome, blame=BLAME[outcome])
    elif end in (End.FAILED, End.INTERRUPTED):
        outcome = Outcome.SAMPLER_ERROR if sampler_error else Outcome.HARNESS_ERROR
        return Verdict(outcome, error=harness.error if harness else None, blame=BLAME[outcome])
    else:
        outcome = Outcome.GRADED
    reward, problem = read_reward(rewards, rule)
    if problem is not None:
        error = f"{problem} ({failure})" if failure else problem
        return Verdict(Outcome.VERIFIER_ERROR, error=error, blame=BLAME[Outcome.VERIFIER_ERROR])
    return Verdict(outcome, reward=reward, blame=BLAME[outcome])


def blame_of_failure(failure: Failure, outcome: Outcome, turns: int = 1) -> Blame | None:
    """Who has to act. An agent that ran out of time before the policy had answered once waited for the service."""
    if outcome is Outcome.AGENT_TIMEOUT and turns == 0:
        return Blame.INFRASTRUCTURE
    return _BLAMED_BY_NAME.get(failure.name, BLAME[outcome])


def outcome_of_failure(failure: Failure, sampler_error: str | None = None) -> Outcome:
    """The outcome of a trial that was ended by an exception."""
    match failure.name:
        case "CancelledError":
            return Outcome.CANCELLED
        case "PolicyCallFailed":
            return Outcome.SAMPLER_ERROR
        case "AgentTimeoutError":
            return Outcome.AGENT_TIMEOUT
        case name if name in _SANDBOX_FAILURES:
            return Outcome.SANDBOX_ERROR
    match failure.phase:
        case Phase.PREPARATION | Phase.AGENT_SETUP:
            return Outcome.HARNESS_ERROR
        case Phase.SANDBOX | Phase.STEP_SETUP:
            return Outcome.SANDBOX_ERROR
        case Phase.VERIFIER:
            return Outcome.VERIFIER_ERROR
        case _:
            if failure.name == "DeadlineExceeded":
                return Outcome.AGENT_TIMEOUT
            return Outcome.SAMPLER_ERROR if sampler_error else Outcome.HARNESS_ERROR

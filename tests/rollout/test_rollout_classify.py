"""The decision table of outcomes, without running anything."""

import math

import pytest

from drydock.errors import Blame
from drydock.harness.result import End, HarnessResult
from drydock.rollout.outcome import BLAME, Failure, Outcome, Phase, classify
from drydock.rollout.reward import RewardRule


def decide(
    failure: Failure | None = None,
    end: End | None = End.FINISH_TOOL,
    rewards: dict[str, float] | None = None,
    sampler_error: str | None = None,
    unsubmitted: str = "mask",
    context_full: bool = False,
    turns: int = 1,
):
    return classify(
        failure=failure,
        harness=HarnessResult(rollout_id="r", end=end) if end is not None else None,
        rewards=rewards,
        sampler_error=sampler_error,
        context_full=context_full,
        rule=RewardRule(),
        unsubmitted=unsubmitted,  # pyright: ignore[reportArgumentType]
        turns=turns,
    )


@pytest.mark.parametrize(
    ("phase", "name", "outcome"),
    [
        (Phase.SANDBOX, "RuntimeError", Outcome.SANDBOX_ERROR),
        (Phase.SANDBOX, "EnvironmentStartTimeoutError", Outcome.SANDBOX_ERROR),
        (Phase.AGENT_SETUP, "AgentSetupTimeoutError", Outcome.HARNESS_ERROR),
        (Phase.AGENT, "AgentTimeoutError", Outcome.AGENT_TIMEOUT),
        (Phase.AGENT, "PolicyCallFailed", Outcome.SAMPLER_ERROR),
        (Phase.AGENT, "SandboxCommandFailed", Outcome.SANDBOX_ERROR),
        (Phase.AGENT, "AgentCrashed", Outcome.HARNESS_ERROR),
        (Phase.AGENT, "ConversationRunError", Outcome.HARNESS_ERROR),
        (Phase.AGENT, "SomethingNobodyKnows", Outcome.HARNESS_ERROR),
        (Phase.AGENT, "CancelledError", Outcome.CANCELLED),
        (Phase.VERIFIER, "VerifierTimeoutError", Outcome.VERIFIER_ERROR),
        (Phase.VERIFIER, "ValidationError", Outcome.VERIFIER_ERROR),
        (Phase.VERIFIER, "AddTestsDirError", Outcome.SANDBOX_ERROR),
    ],
)
def test_a_failed_trial_has_no_reward_whatever_harbor_thinks_of_the_exception(phase, name, outcome):
    verdict = decide(Failure(phase, name, "why"), rewards={"reward": 0.0})
    assert (verdict.outcome, verdict.reward) == (outcome, None)
    assert verdict.error == f"{name}: why"
    assert verdict.blame is BLAME[outcome]


def test_a_sandbox_that_could_not_be_removed_does_not_take_the_reward_away():
    verdict = decide(Failure(Phase.CLEANUP, "OSError", "busy"), rewards={"reward": 1.0})
    assert (verdict.outcome, verdict.reward) == (Outcome.GRADED, 1.0)


@pytest.mark.parametrize("end", [End.FINISH_TOOL, End.FINAL_TEXT, None])
def test_a_submission_is_graded(end):
    assert decide(end=end, rewards={"reward": 0.5}).reward == 0.5


@pytest.mark.parametrize(
    ("end", "outcome"),
    [(End.TURNS_EXHAUSTED, Outcome.TURNS_EXHAUSTED), (End.CONTEXT_FULL, Outcome.CONTEXT_FULL)],
)
def test_without_a_submission_the_setting_decides(end, outcome):
    masked = decide(end=end, rewards={"reward": 1.0})
    assert (masked.outcome, masked.reward) == (outcome, None)
    graded = decide(end=end, rewards={"reward": 1.0}, unsubmitted="grade")
    assert (graded.outcome, graded.reward) == (outcome, 1.0)
    assert decide(end=end, rewards=None, unsubmitted="grade").outcome is Outcome.VERIFIER_ERROR


@pytest.mark.parametrize("rewards", [None, {}, {"score": 1.0}, {"reward": math.nan}, {"reward": math.inf}])
def test_a_missing_or_infinite_reward_is_the_verifiers_error(rewards):
    verdict = decide(rewards=rewards)
    assert (verdict.outcome, verdict.reward) == (Outcome.VERIFIER_ERROR, None)
    assert verdict.error


def test_an_unknown_failure_after_a_sampler_failure_is_the_samplers():
    assert decide(Failure(Phase.AGENT, "Whatever", ""), sampler_error="gone").outcome is Outcome.SAMPLER_ERROR


def test_only_breakage_counts_as_failure():
    fine = {Outcome.GRADED, Outcome.TURNS_EXHAUSTED, Outcome.CONTEXT_FULL}
    assert {outcome for outcome in Outcome if not outcome.is_failure} == fine
    assert set(BLAME) == set(Outcome)


@pytest.mark.parametrize(
    ("phase", "name", "outcome", "blame"),
    [
        (Phase.SANDBOX, "TaskError", Outcome.SANDBOX_ERROR, Blame.TASK),
        (Phase.SANDBOX, "HealthcheckError", Outcome.SANDBOX_ERROR, Blame.TASK),
        (Phase.SANDBOX, "SandboxBuildFailedError", Outcome.SANDBOX_ERROR, Blame.TASK),
        (Phase.SANDBOX, "SandboxUnavailable", Outcome.SANDBOX_ERROR, Blame.USER),
        (Phase.STEP_SETUP, "StepSetupFailed", Outcome.SANDBOX_ERROR, Blame.TASK),
        (Phase.STEP_SETUP, "HealthcheckError", Outcome.SANDBOX_ERROR, Blame.TASK),
        (Phase.STEP_SETUP, "OSError", Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE),
        (Phase.AGENT_SETUP, "ConfigError", Outcome.HARNESS_ERROR, Blame.USER),
        (Phase.VERIFIER, "SandboxError", Outcome.SANDBOX_ERROR, Blame.INFRASTRUCTURE),
        (Phase.VERIFIER, "TaskError", Outcome.VERIFIER_ERROR, Blame.TASK),
    ],
)
def test_who_has_to_act_depends_on_what_was_raised_and_where(phase, name, outcome, blame):
    verdict = decide(Failure(phase, name, "why"))
    assert (verdict.outcome, verdict.blame) == (outcome, blame)


@pytest.mark.parametrize(("turns", "blame"), [(0, Blame.INFRASTRUCTURE), (1, Blame.MODEL)])
def test_a_policy_that_never_answered_is_not_blamed_for_the_time(turns, blame):
    verdict = decide(Failure(Phase.AGENT, "AgentTimeoutError", "late"), turns=turns)
    assert (verdict.outcome, verdict.blame) == (Outcome.AGENT_TIMEOUT, blame)

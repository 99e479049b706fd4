"""The phases of a Harbor trial, and in which of them an exception happened.

Harbor records one exception and the start and end of each phase; the exception belongs to the phase that was started
last, unless it happened before that (Harbor may verify after a failed agent) or after it was complete (stopping the
sandbox).
"""

import re

from harbor.models.trial.result import ExceptionInfo, StepResult, TimingInfo, TrialResult

from drydock.rollout.outcome import Failure, Phase

_SETUP_FAILED = re.compile(r"Step .* setup\.sh exited with code \d+")


def first_failure(result: TrialResult) -> Failure | None:
    """The first exception that Harbor recorded, of the trial or of one of its steps."""
    if result.exception_info is not None:
        return _failure(result.exception_info, _phase(result.exception_info, result) or latest_phase(result))
    for step in result.step_results or []:
        if step.exception_info is not None:
            if step.agent_execution is None:
                return _of_step_setup(step.exception_info)
            return _failure(step.exception_info, _phase(step.exception_info, step) or Phase.AGENT)
    return None


def _of_step_setup(info: ExceptionInfo) -> Failure:
    """A step that failed before its agent. Harbor has no class of its own for a setup.sh that ends with an error."""
    failure = _failure(info, Phase.STEP_SETUP)
    if _SETUP_FAILED.match(failure.message):
        return Failure(Phase.STEP_SETUP, "StepSetupFailed", failure.message)
    return failure


def _failure(info: ExceptionInfo, phase: Phase) -> Failure:
    return Failure(phase, info.exception_type, info.exception_message.strip())


def _phase(info: ExceptionInfo, result: TrialResult | StepResult) -> Phase | None:
    """Agent, verifier or clean-up, for an exception of something that got as far as verification."""
    verifier = result.verifier
    if verifier is None or verifier.started_at is None:
        return None
    if info.occurred_at < verifier.started_at:
        return Phase.AGENT
    return Phase.VERIFIER if result.verifier_result is None else Phase.CLEANUP


def latest_phase(result: TrialResult) -> Phase:
    """The last phase that `result` says was started."""
    steps = result.step_results or []
    started: list[tuple[Phase, TimingInfo | None]] = [
        (Phase.VERIFIER, result.verifier or (steps[-1].verifier if steps else None)),
        (Phase.AGENT, result.agent_execution or (steps[-1].agent_execution if steps else None)),
        (Phase.AGENT_SETUP, result.agent_setup),
        (Phase.SANDBOX, result.environment_setup),
    ]
    return next((phase for phase, timing in started if timing is not None), Phase.PREPARATION)


def durations_s(result: TrialResult) -> dict[str, float]:
    """Seconds spent in each phase that ended; for a trial in steps, the sums over its steps."""
    timings: dict[str, list[TimingInfo | None]] = {
        "sandbox_s": [result.environment_setup],
        "agent_setup_s": [result.agent_setup],
        "agent_s": [result.agent_execution, *(step.agent_execution for step in result.step_results or [])],
        "verifier_s": [result.verifier, *(step.verifier for step in result.step_results or [])],
    }
    durations: dict[str, float] = {}
    for name, parts in timings.items():
        known = [
            (part.finished_at - part.started_at).total_seconds()
            for part in parts
            if part is not None and part.finished_at is not None and part.started_at is not None
        ]
        if known:
            durations[name] = round(sum(known), 4)
    return durations

"""One Harbor trial from creation to the last trace of it removed.

What Drydock adds to `Trial.run()`:

* Everything that still runs in the sandbox when the agent is done is killed before the verifier starts, so that nothing
  the agent left behind can touch the grading.
* The verifier is not run for a rollout that will be masked anyway (failed, out of time, or never submitted).
* One deadline over everything, on top of Harbor's deadlines for the phases.
* A cancellation is passed to the trial once, which then stops its sandbox; further cancellations wait for that.
* The trial's directory and its loggers are removed.
"""

import asyncio
import logging
import math
import re
import shutil
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from harbor.models.trial.result import TrialResult
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial
from harbor.utils.logger import logger as harbor_logger

from drydock.harness.failures import SandboxCommandFailed
from drydock.harness.result import End, HarnessResult
from drydock.harness.settle import settle
from drydock.own_directory import own_directory
from drydock.rollout.outcome import Failure, Phase
from drydock.rollout.prepared_task import AgentNotMade, make_trial
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trial_config import trial_config
from drydock.rollout.trial_phases import durations_s, first_failure, latest_phase

log = logging.getLogger(__name__)

# Harbor sets its logger to DEBUG and gives every trial a file; what matters is in the trial's result.
harbor_logger.setLevel(logging.WARNING)

OUTPUT_TAIL_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """What is left of a trial: its first failure, the agent's report, the verifier's rewards, and times.

    verifier_output: the end of what the verifier printed, kept only when it left no reward.
    """

    failure: Failure | None = None
    harness: HarnessResult | None = None
    rewards: dict[str, float] | None = None
    timings: dict[str, float] = field(default_factory=dict)
    verifier_output: str = ""


async def run_trial(spec: RolloutSpec, settings: RolloutSettings) -> TrialEnd:
    """Run the trial of `spec`; every failure is in the returned value, only CancelledError is raised."""
    trials_dir = settings.work_dir or _temporary_trials_dir()
    try:
        trial = make_trial(trial_config(spec, settings, trials_dir), settings.pass_env)
    except Exception as error:
        shutil.rmtree(trials_dir / spec.rollout_id, ignore_errors=True)
        _forget_loggers(spec.rollout_id)
        return TrialEnd(failure=_not_made(error))
    trial.add_hook(TrialEvent.AGENT_END, _AgentEnd(trial, settings))
    end: TrialEnd | None = None
    try:
        failure = await _run_to_deadline(trial, settings)
        end = _read(trial, failure)
        return end
    finally:
        failed = end is None or end.failure is not None
        _forget_loggers(spec.rollout_id)
        if settings.keep_trials == "never" or (settings.keep_trials == "failed" and not failed):
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, trials_dir / spec.rollout_id, ignore_errors=True))


def _not_made(error: Exception) -> Failure:
    of_agent = isinstance(error, AgentNotMade)
    cause = error.__cause__ if of_agent and error.__cause__ is not None else error
    return Failure(Phase.AGENT_SETUP if of_agent else Phase.SANDBOX, type(cause).__name__, str(cause))


async def _run_to_deadline(trial: Trial, settings: RolloutSettings) -> Failure | None:
    """Run the trial; return why it did not end by itself, if so."""
    deadlines = settings.deadlines
    overall_s = deadlines.overall_for(len(trial.task.config.steps or [None]))
    task = asyncio.create_task(trial.run(), name=f"trial-{trial.config.trial_name}")
    scope = asyncio.timeout(overall_s)
    try:
        async with scope:
            await asyncio.shield(task)
    except TimeoutError:
        if not scope.expired():
            raise
        phase = latest_phase(trial.result)
        await _stop(task, deadlines.cleanup_s)
        return Failure(phase, "DeadlineExceeded", f"the rollout took longer than {overall_s:g} s")
    except asyncio.CancelledError:
        await _stop(task, deadlines.cleanup_s)
        raise
    except Exception as error:
        return Failure(Phase.CLEANUP, type(error).__name__, str(error))
    return None


async def _stop(task: asyncio.Task[TrialResult], grace_s: float) -> None:
    task.cancel()
    if not await settle(task, grace_s):
        log.error(
            "%s could not be stopped within %g s; what is left is removed by `drydock reap` once this process is over",
            task.get_name(),
            grace_s,
        )


@dataclass(frozen=True, slots=True)
class _AgentEnd:
    """Harbor hook between the agent and everything that follows it."""

    trial: Trial
    settings: RolloutSettings

    async def __call__(self, event: TrialHookEvent) -> None:
        report = _report(self.trial.result)
        if report is not None and not _worth_grading(report, self.settings):
            self.trial.config.verifier.disable = True
            return
        kill = getattr(self.trial.agent_environment, "kill_processes", None)
        if kill is None:
            return
        try:
            async with asyncio.timeout(self.settings.deadlines.cleanup_s):
                await kill()
        except Exception as error:
            self.trial.config.verifier.disable = True
            raise SandboxCommandFailed(
                f"the sandbox's processes could not be killed before grading: {error}"
            ) from error


def _worth_grading(report: HarnessResult, settings: RolloutSettings) -> bool:
    if report.end in (End.FAILED, End.INTERRUPTED):
        return False
    return report.submitted or settings.unsubmitted == "grade"


def _report(result: TrialResult) -> HarnessResult | None:
    """The agent's own account; of the last step when the task has steps."""
    contexts = [result.agent_result, *(step.agent_result for step in result.step_results or [])]
    known = [context for context in contexts if context is not None]
    return HarnessResult.from_metadata(known[-1].metadata) if known else None


def _read(trial: Trial, failure: Failure | None) -> TrialEnd:
    result = trial.result
    rewards = result.verifier_result.rewards if result.verifier_result is not None else None
    return TrialEnd(
        failure=failure or _in_the_tasks_words(first_failure(result), trial),
        harness=_report(result),
        rewards={key: _as_float(value) for key, value in rewards.items()} if rewards else None,
        timings=durations_s(result),
        verifier_output="" if rewards else _verifier_output(trial.paths.trial_dir),
    )


def _as_float(number: float) -> float:
    """JSON has whole numbers that are too large for a float."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _in_the_tasks_words(failure: Failure | None, trial: Trial) -> Failure | None:
    """The failure with the verifier's files under the paths that the task knows, not where Harbor copied them to."""
    if failure is None or failure.phase is not Phase.VERIFIER:
        return failure
    copies = re.escape(str(trial.paths.trial_dir))
    message = re.sub(rf"{copies}(/steps/[^/\s]+)?/", "/logs/", failure.message)
    if failure.name == "ValidationError" and "VerifierResult" in message:
        message = '/logs/verifier/reward.json is no object of numbers, such as {"reward": 1.0}'
    return replace(failure, message=message)


def _verifier_output(trial_dir: Path) -> str:
    """The end of what the verifier printed; of the step that was verified last when the task has steps."""
    try:
        files = sorted(trial_dir.rglob("test-stdout.txt"), key=lambda file: file.stat().st_mtime_ns)
        return files[-1].read_text(encoding="utf-8", errors="replace")[-OUTPUT_TAIL_CHARS:].strip() if files else ""
    except OSError:
        return ""


@cache
def _temporary_trials_dir() -> Path:
    return own_directory("trials")


def _forget_loggers(rollout_id: str) -> None:
    """Let go of the loggers that Harbor made for a trial, which Python would keep for the life of the process.

    Their names hold the trial's name between dots; another trial whose name begins alike keeps its own.
    """
    known = logging.Logger.manager.loggerDict
    gone = [known.pop(name) for name in list(known) if f".{rollout_id}." in f".{name}."]
    for other in known.values():
        if isinstance(other, logging.PlaceHolder):
            for logger in gone:
                other.loggerMap.pop(logger, None)  # pyright: ignore[reportArgumentType, reportCallIssue]

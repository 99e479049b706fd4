"""One rollout: a proxy session, a Harbor trial, an outcome."""

import asyncio
import math
import time
from pathlib import Path

from drydock.harness.connections import Answer, Connection, offered
from drydock.proxy.chat_session import ChatSession, SessionOpener
from drydock.proxy.record import RolloutRecord
from drydock.rollout.evidence import Evidence
from drydock.rollout.outcome import BLAME, Outcome, Verdict, classify
from drydock.rollout.settings import RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory
from drydock.rollout.trial import TrialEnd, run_trial


async def run_rollout(
    spec: RolloutSpec, settings: RolloutSettings, proxy: SessionOpener, out_dir: Path | None = None
) -> Trajectory:
    """Run one attempt at one task and return what came of it; with `out_dir`, also write it there.

    A rollout that fails in whatever way is a trajectory with the outcome that says so, never an exception. A
    cancellation is raised on after everything the rollout started has been stopped and its trajectory written.
    """
    started = time.perf_counter()
    session = proxy.open_rollout(spec.rollout_id)
    end = TrialEnd()
    cancelled = False
    try:
        with offered(spec.rollout_id, Connection(session.base_url, session.api_key, answer_of(session))):
            end = await run_trial(spec, settings)
    except asyncio.CancelledError:
        cancelled = True
        raise
    finally:
        record = await asyncio.shield(session.close())
        if cancelled and out_dir is not None:
            verdict = Verdict(Outcome.CANCELLED, error="the rollout was cancelled", blame=BLAME[Outcome.CANCELLED])
            _trajectory(spec, end, record, verdict, started).write(out_dir)
    verdict = classify(
        failure=end.failure,
        harness=end.harness,
        rewards=end.rewards,
        sampler_error=record.sampler_error,
        context_full=record.context_full,
        rule=settings.reward,
        unsubmitted=settings.unsubmitted,
        turns=len(record.turns),
    )
    trajectory = _trajectory(spec, end, record, verdict, started)
    if out_dir is not None:
        await asyncio.to_thread(trajectory.write, out_dir)
    return trajectory


def answer_of(session: ChatSession) -> Answer:
    """The session's chat endpoint without HTTP around it, for an agent in this process."""

    async def answer(body: bytes) -> tuple[int, bytes]:
        reply = await session.answer(body)
        return reply.status, reply.body

    return answer


def _trajectory(
    spec: RolloutSpec, end: TrialEnd, record: RolloutRecord, verdict: Verdict, started: float
) -> Trajectory:
    return Trajectory.of(
        spec,
        outcome=verdict.outcome,
        blame=verdict.blame,
        error=verdict.error,
        reward=verdict.reward,
        rewards={name: value if math.isfinite(value) else None for name, value in (end.rewards or {}).items()},
        submitted=end.harness.submitted if end.harness is not None else verdict.outcome is Outcome.GRADED,
        turns=len(record.turns),
        evidence=_evidence(end, record),
        record=record,
        timings={**end.timings, "total_s": round(time.perf_counter() - started, 4)},
    )


def _evidence(end: TrialEnd, record: RolloutRecord) -> Evidence:
    return Evidence(
        phase=end.failure.phase if end.failure else None,
        exception=end.failure.name if end.failure else None,
        agent_end=end.harness.end if end.harness else None,
        sampling_s=record.sampling_s,
        sampler_error=record.sampler_error,
        verifier_output=end.verifier_output,
    )

"""Turns that were sampled by another policy than the one that is trained, by more than the run allows."""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.rollout.trajectory import Trajectory
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def policy_version(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Compares the versions that turns report with the allowed ones; a turn that reports none cannot be checked."""
    allowed = set(facts.allowed_versions)
    wrong = [one for one in facts.trajectories if not versions_of(one) <= allowed]
    if not wrong:
        return None
    seen = sorted(set[int]().union(*map(versions_of, wrong)) - allowed)
    newer = seen[-1] > max(allowed, default=-1)
    return Symptom(
        f"{len(wrong)} of {len(facts.trajectories)} rollouts have turns of a wrong policy: version "
        f"{_listed(seen)}, expected {_listed(facts.allowed_versions)}",
        Blame.INFRASTRUCTURE,
        "another client trains this job: see who else has its id, and start the run anew"
        if newer
        else "the sampler missed a weight sync, or a rollout took longer than trainer.max_staleness_steps allows: look "
        "at the service's log (`drydock jobs logs`)",
        rollouts=examples(wrong),
        metrics=("policy/version",),
        about="newer" if newer else "older",
    )


def versions_of(trajectory: Trajectory) -> set[int]:
    """The policy versions of a rollout's turns, as far as the service reports them."""
    return {turn.policy_version for turn in trajectory.record.turns if turn.policy_version is not None}


def _listed(versions: Sequence[int]) -> str:
    return " or ".join(map(str, versions)) or "none"

"""A clip that binds for most tokens: they have no gradient, and what is left of the batch decides alone."""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom
from drydock.training.diagnosis.facts import StepFacts, StepSummary, last_measured, measured
from drydock.training.diagnosis_config import DiagnosisConfig

CLIPPED = "policy/ppo_clip_ratio"


def clip_fraction(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Looks whether the share was too high in each of the last updates."""
    recent = last_measured(steps, CLIPPED, limits.clip_fraction_steps)
    if recent is None or measured(facts.metrics, CLIPPED) is None or min(recent) < limits.clip_fraction_share:
        return None
    return Symptom(
        f"the clip binds for {recent[-1]:.0%} of the trained tokens, for at least {min(recent):.0%} in {len(recent)} "
        "step(s)",
        Blame.USER,
        "lower trainer.policy.optimizer_config.lr, make fewer updates a step (trainer.policy_mini_batch_size), let "
        "rollouts be less stale, or widen trainer.algorithm.eps_clip_low and eps_clip_high; look at mismatch/ first",
        metrics=(CLIPPED,),
    )

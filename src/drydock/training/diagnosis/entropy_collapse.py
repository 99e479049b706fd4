"""A policy that always says the same cannot find anything better."""

from collections.abc import Sequence
from statistics import fmean

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary, last_measured, measured
from drydock.training.diagnosis_config import DiagnosisConfig

ENTROPY = "policy/policy_entropy"


def entropy_collapse(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Compares the mean entropy of the last updates with that of the first ones, and with the floor."""
    recent = last_measured(steps, ENTROPY, limits.entropy_collapse_steps)
    if recent is None or measured(facts.metrics, ENTROPY) is None:
        return None
    now = fmean(recent)
    first = [value for one in steps if (value := measured(one.metrics, ENTROPY)) is not None]
    baseline = first[: limits.entropy_collapse_baseline]
    settled = len(first) >= limits.entropy_collapse_baseline + limits.entropy_collapse_steps
    if settled and now < limits.entropy_collapse_share * fmean(baseline):
        than = f"less than {limits.entropy_collapse_share:g} of the {fmean(baseline):.3g} that the run began with"
    elif now < limits.entropy_collapse_floor:
        than = f"below {limits.entropy_collapse_floor:g}"
    else:
        return None
    return Symptom(
        f"the entropy is {now:.3g} nats a token, {than}",
        Blame.USER,
        "go back to an earlier checkpoint with a lower trainer.policy.optimizer_config.lr or a higher "
        "trainer.algorithm.eps_clip_high; where the rewards are high, the run is simply done",
        rollouts=examples(facts.graded),
        metrics=(ENTROPY,),
    )

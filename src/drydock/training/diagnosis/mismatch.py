"""Trainer and sampler disagree: importance ratios are then noise, and the clip hides it.

On the same weights the difference is that of two computations of one number: 1e-6 nats in float32, about 0.01 where
sampler and trainer are different programs in bfloat16. Stale rollouts add what the policy has moved since.
"""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom
from drydock.training.diagnosis.facts import StepFacts, StepSummary, measured
from drydock.training.diagnosis_config import DiagnosisConfig

DIFFERENCE = "mismatch/logprob_diff_mean"
SIGNED = "policy/approx_kl"


def mismatch(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Takes the mean absolute difference, or the size of the mean one, which is never greater, where that is all."""
    name = DIFFERENCE if measured(facts.metrics, DIFFERENCE) is not None else SIGNED
    difference = measured(facts.metrics, name)
    stale = len(facts.allowed_versions) > 1
    limit = limits.mismatch_logprob_diff_stale if stale else limits.mismatch_logprob_diff
    if difference is None or abs(difference) <= limit:
        return None
    return Symptom(
        f"log-probs of trainer and sampler differ by {abs(difference):.2g} nats a token, more than {limit:g}",
        Blame.INFRASTRUCTURE,
        "sampler and trainer must hold the same weights, in the same precision, with the same chat template and "
        "temperature 1 (generator.sampling_params)"
        + ("; or let rollouts be less stale (trainer.max_staleness_steps)" if stale else ""),
        metrics=(name,),
    )

"""A loss or gradient that is no number. Drydock's service refuses such a step; another one may take it.

A refusal ends the step before it has metrics: `refused_update` recognises it.
"""

import math
import re
from collections.abc import Sequence

from drydock.errors import Blame, DrydockError, RequestFailed
from drydock.training.diagnosis.base import Symptom
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig

FIGURES = {"policy/policy_loss": "the loss", "policy/raw_grad_norm": "the gradient's norm"}
REFUSED = re.compile(r"(?:gradient norm|loss '[^']*') is [+-]?(?:nan|inf)\b")
REMEDY = (
    "look for rewards of great size (reward.lowest, reward.highest), lower trainer.policy.optimizer_config.lr and go "
    "on from an earlier checkpoint, or load the model in a wider dtype"
)


def gradient(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Looks for NaN and infinity among the update's figures."""
    seen = {name: facts.metrics[name] for name in FIGURES if isinstance(facts.metrics.get(name), float)}
    wrong = {name: value for name, value in seen.items() if not math.isfinite(value)}
    if not wrong:
        return None
    said = " and ".join(f"{FIGURES[name]} is {value}" for name, value in wrong.items())
    return Symptom(f"{said}: the weights may hold NaN now", Blame.MODEL, REMEDY, metrics=tuple(wrong))


def refused_update(error: DrydockError) -> Symptom | None:
    """What a failed request of the trainer says about the gradient; None when it failed for another reason."""
    if not isinstance(error, RequestFailed) or not REFUSED.search(str(error)):
        return None
    return Symptom(f"the trainer refused the update: {error}", Blame.MODEL, REMEDY, metrics=tuple(FIGURES))

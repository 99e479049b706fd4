"""A rollout with a reward but no turn: its agent asked another model, or none, and moved the group's baseline."""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def no_call_captured(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Looks for graded rollouts of which the chat proxy recorded no turn."""
    graded = facts.graded
    silent = [one for one in graded if not one.record.turns]
    if not silent:
        return None
    return Symptom(
        f"{len(silent)} of {len(graded)} graded rollouts made no call that reached the chat proxy",
        Blame.HARNESS,
        "see that the agent takes endpoint and key from its rollout (docs/agents.md), and raises when it cannot call "
        "the policy, instead of ending as if it were done",
        rollouts=examples(silent),
        metrics=("generate/avg_turns",),
    )

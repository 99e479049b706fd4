"""Graded rollouts without a single token of the policy: whatever earned the rewards, nothing of it can be trained."""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def no_trainable_tokens(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Looks for a token with loss mask 1 in any graded rollout."""
    graded = facts.graded
    if not graded or any(any(sample.loss_mask) for one in graded for sample in one.record.samples):
        return None
    turns = sum(len(one.record.turns) for one in graded)
    return Symptom(
        f"none of the {len(graded)} graded rollouts has a token that can be trained ({turns} turns were recorded)",
        Blame.HARNESS,
        "the agent must make its calls at the chat proxy's endpoint (docs/agents.md); look at `record.turns` of the "
        "files named here",
        rollouts=examples(graded),
        metrics=("generate/trained_tokens", "generate/avg_turns"),
    )

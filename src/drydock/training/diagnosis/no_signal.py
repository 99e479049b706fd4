"""Groups in which all rewards are equal, one after the other: the run costs and teaches nothing."""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def no_signal(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Counts the groups with a reward in the steps since the last one in which a group had a signal."""
    groups = []
    for step in reversed(steps):
        if any(group.has_signal for group in step.groups):
            break
        groups += [group for group in step.groups if group.rewards]
    if len(groups) < limits.no_signal_groups:
        return None
    rewards = [group.rewards[0] for group in groups]
    lowest, highest = min(rewards), max(rewards)
    return Symptom(
        f"in the last {len(groups)} groups all rewards of a group were equal "
        f"({rewards.count(lowest)} of them {lowest:g}, the highest is {highest:g})",
        Blame.TASK,
        "take tasks that the policy solves now and then (`drydock tasks check`), a larger "
        "generator.n_samples_per_prompt, or a warm start; rewards for half of the work help too",
        rollouts=examples(facts.graded),
        metrics=("reward/groups_with_signal",),
    )

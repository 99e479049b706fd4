"""A verifier that gives everybody the same: it grades nothing, or every task is as hopeless or trivial as the next."""

from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def constant_reward(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Looks whether the last steps know one reward only, over enough tasks."""
    recent = [one for one in steps if one.rewards][-limits.constant_reward_steps :]
    rewards = [reward for one in recent for reward in one.rewards]
    tasks = {group.task for one in recent for group in one.groups if group.rewards}
    if len(recent) < limits.constant_reward_steps or len(tasks) < limits.constant_reward_tasks or len(set(rewards)) > 1:
        return None
    return Symptom(
        f"all {len(rewards)} rollouts of {len(tasks)} tasks in {len(recent)} step(s) got the reward {rewards[0]:g}",
        Blame.TASK,
        "run `drydock tasks check`: a solution must earn more than an agent that does nothing; then see whether "
        "reward.key names the right number",
        rollouts=examples(facts.graded),
        metrics=("reward/avg_raw_reward", "reward/groups_with_signal"),
        about=f"{rewards[0]:g}",
    )

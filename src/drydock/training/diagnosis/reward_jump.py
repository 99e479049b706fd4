"""A mean reward that leaps is seldom learning: a verifier that is being fooled, other tasks, a policy that broke."""

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from drydock.errors import Blame
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def reward_jump(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Compares the step's mean reward with the median of the means before it.

    The standard deviation of a mean is the greatest of three: that of the means before, and what groups and rollouts
    differ by within a step, divided by the root of their number. So few or different tasks are no jump.
    """
    rewarded = [one for one in steps if one.rewards]
    if not steps or not steps[-1].rewards or len(rewarded) <= limits.reward_jump_steps:
        return None
    *before, now = rewarded[-limits.reward_jump_steps - 1 :]
    means = [fmean(one.rewards) for one in before]
    usual, reached = median(means), fmean(now.rewards)
    jump = reached - usual
    everything = [reward for one in (*before, now) for reward in one.rewards]
    span = max(everything) - min(everything)
    groups = [[fmean(group.rewards) for group in one.groups if group.rewards] for one in (*before, now)]
    rollouts = [one.rewards for one in (*before, now)]
    deviation = max(stdev(means), _of_mean(groups), _of_mean(rollouts))
    sigmas = abs(jump) / deviation if deviation else math.inf
    if jump == 0 or abs(jump) < limits.reward_jump_share * span or sigmas <= limits.reward_jump_sigmas:
        return None
    return Symptom(
        f"the mean reward is {reached:.3g}, {'above' if jump > 0 else 'below'} the {usual:.3g} of the "
        f"{len(before)} steps before by {sigmas:.1f} standard deviations",
        Blame.TASK,
        "read the rollouts that are named here: is the verifier fooled, are these other tasks?"
        if jump > 0
        else "read the rollouts that are named here: did the policy break (then a lower learning rate, from an earlier "
        "checkpoint), or the sandbox or the verifier?",
        rollouts=examples(sorted(facts.graded, key=lambda one: one.reward or 0.0, reverse=jump > 0)),
        metrics=("reward/avg_raw_reward",),
        about="up" if jump > 0 else "down",
    )


def _of_mean(steps: Sequence[Sequence[float]]) -> float:
    """Standard deviation of the last step's mean, by how values differ within the steps."""
    squares = sum((value - fmean(step)) ** 2 for step in steps for value in step)
    free = sum(len(step) - 1 for step in steps)
    return math.sqrt(squares / free / len(steps[-1])) if free else 0.0

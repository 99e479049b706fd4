"""Rollouts that were cut off: what is trained then is how to use a budget up, not how to solve a task."""

from collections import Counter
from collections.abc import Sequence

from drydock.errors import Blame
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig

TURNS, CONTEXT, LENGTH = "turns", "context", "a turn's tokens"

REMEDIES = {
    TURNS: "raise generator.max_turns (or agent.max_sampled_tokens, agent.max_seconds where they are set), or take "
    "tasks that need fewer turns; look whether the agent is ever told to finish",
    CONTEXT: "raise generator.max_input_length, or lower agent.max_output_chars",
    LENGTH: "raise generator.sampling_params.max_generate_length; a policy that never ends its turn needs a warm "
    "start, or has another end-of-turn token than its chat template",
}


def truncated(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Compares the rollouts that were cut off with all in which nothing broke."""
    ended = [one for one in facts.trajectories if not one.outcome.is_failure]
    cut = [one for one in ended if used_up(one) is not None]
    if not cut or len(cut) < limits.truncated_share * len(ended):
        return None
    counts = Counter(str(used_up(one)) for one in cut)
    most = counts.most_common(1)[0][0]
    return Symptom(
        f"{len(cut)} of {len(ended)} rollouts were cut off, having used up "
        + ", ".join(f"{what} ({count})" for what, count in counts.most_common()),
        Blame.USER,
        REMEDIES[most],
        rollouts=examples([one for one in cut if used_up(one) == most]),
        metrics=("outcome/turns_exhausted", "outcome/context_full"),
        about=most,
    )


def used_up(trajectory: Trajectory) -> str | None:
    """What the rollout used up, None when it ended by itself."""
    if trajectory.outcome is Outcome.CONTEXT_FULL:
        return CONTEXT
    turns = trajectory.record.turns
    if turns and turns[-1].finish_reason == "length":
        return LENGTH
    return TURNS if trajectory.outcome is Outcome.TURNS_EXHAUSTED else None

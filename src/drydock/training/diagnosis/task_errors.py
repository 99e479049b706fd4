"""One task that breaks again and again costs the time of many rollouts and hides what else breaks."""

from collections import Counter
from collections.abc import Sequence

from drydock.errors import Blame
from drydock.training.causes import broke
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig


def task_errors(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Compares the broken rollouts of the worst task with those of all tasks in the last steps.

    Says nothing in a step in which nothing of that task broke.
    """
    broken: Counter[str] = Counter()
    for step in steps[-limits.task_errors_steps :]:
        for group in step.groups:
            broken[group.task] += group.broken
    if len(broken) < 2:
        return None
    total = broken.total()
    task, count = broken.most_common(1)[0]
    own = [one for one in facts.trajectories if one.task == task and broke(one)]
    if not own or count < limits.task_errors_least or count < limits.task_errors_share * total:
        return None
    outcome = Counter(one.outcome.value for one in own).most_common(1)[0][0]
    blame = Counter(one.blame or Blame.TASK for one in own).most_common(1)[0][0]
    return Symptom(
        f"{count} of {total} broken rollouts are of the task {task}, most often {outcome}",
        blame,
        f"see `drydock tasks check` for {task}, mend it or leave it out; trainer.task_strikes says after how many "
        "broken groups the run leaves it out by itself",
        rollouts=examples(own),
        metrics=("rollouts/masked",),
        about=task,
    )

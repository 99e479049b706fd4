"""The steps of a run that goes on, as its diagnosis remembers them, read from the run's folder.

Metrics come from metrics.jsonl, rewards and failures from the trajectory files.
"""

from collections.abc import Iterable, Iterator

from drydock.report.metrics import MetricsFile
from drydock.rollout.cut_group import was_cut_off
from drydock.rollout.trajectory import Trajectory
from drydock.training.diagnosis.facts import StepFacts, StepSummary, summary_of
from drydock.training.diagnosis_config import DiagnosisConfig
from drydock.training.group_rollouts import by_task
from drydock.training.run_folder import RunFolder


def recall(folder: RunFolder, last: int, limits: DiagnosisConfig) -> list[StepSummary]:
    """Steps 1 to `last`, in order. Of those that no check looks back to, only the metrics are read."""
    back = max(
        limits.no_signal_groups, limits.reward_jump_steps, limits.constant_reward_steps, limits.task_errors_steps
    )
    steps = []
    for record in MetricsFile(folder.metrics).read():
        step = record["step"]
        if "policy/updates" in record and step <= last:
            found = _of_whole_groups(_trajectories(folder, step)) if step > last - back else []
            steps.append(summary_of(StepFacts(step, record, found, allowed_versions=())))
    return steps


def _of_whole_groups(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Without the groups that the step did not wait for, which its checks never saw."""
    groups = by_task([one for one in trajectories if not one.replaced])
    return [one for group in groups.values() if not was_cut_off(group) for one in group]


def _trajectories(folder: RunFolder, step: int) -> Iterator[Trajectory]:
    for file in sorted(folder.trajectories(step, "train").glob("*")):
        if file.suffix in (".json", ".error"):
            yield Trajectory.read(file)

"""A run at one moment, as everything shows it: the live view, the printed page and the JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.report.monitor.findings import Finding
from drydock.report.monitor.life import Life, RunLife
from drydock.report.monitor.outcomes import OutcomeCount
from drydock.report.monitor.settings import RunSettings
from drydock.report.monitor.step_rows import Evaluation, StepRow
from drydock.report.used import Used


@dataclass(frozen=True, slots=True)
class RunState:
    """settings: None until there is a readable `config.toml`. step: the last one that is done, 0 before the first.
    steps: of the whole run, None where not known, and of an evaluation on its own.

    since_last_s: since the last record of metrics.jsonl, None without one. after_evaluation: that record is one of an
    evaluation. step_s: what a step takes. rest_s: estimated time to the end, of a run that goes on. under_way: rollouts
    that have turns and no file yet. rows and evaluations: in order. standing: findings of the last step; past: earlier
    ones. dropped: tasks that the run goes on without, with step and cause. problems: what cannot be read, in words.
    """

    root: Path
    settings: RunSettings | None
    life: RunLife
    job_id: str
    step: int
    steps: int | None
    since_last_s: float | None
    after_evaluation: bool
    step_s: float | None
    rest_s: float | None
    under_way: int
    rows: Sequence[StepRow]
    evaluations: Sequence[Evaluation]
    outcomes: tuple[OutcomeCount, ...]
    standing: tuple[Finding, ...]
    past: tuple[Finding, ...]
    dropped: tuple[dict[str, Any], ...]
    used: Used
    log_tail: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """The run's name, or that of its folder as long as it is not known."""
        return self.settings.run_name if self.settings else self.root.name

    @property
    def supervised(self) -> bool:
        """Whether the run learns from conversations: it has losses in place of rewards."""
        return self.settings is not None and self.settings.supervised

    @property
    def is_running(self) -> bool:
        return self.life.life is Life.RUNNING


def time_left(
    settings: RunSettings, step: int, steps: int, step_s: float, evaluation_s: float | None, since_last_s: float
) -> float:
    """Estimated seconds from now to the end of the last step or evaluation; checkpoints are not reckoned in."""
    evaluating = settings.evaluations_after(step, steps) * (evaluation_s or 0.0)
    return max(0.0, (steps - step) * step_s + evaluating - since_last_s)

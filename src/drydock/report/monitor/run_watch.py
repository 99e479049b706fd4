"""Reading a run's folder again and again, each time only what is new. Nothing is written, nothing is locked."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drydock.amount import amount
from drydock.errors import UserError
from drydock.report.monitor.findings import Findings
from drydock.report.monitor.json_lines import JsonLines
from drydock.report.monitor.life import Life, life_of
from drydock.report.monitor.outcomes import OutcomeCount, outcomes_of
from drydock.report.monitor.run_files import RunFiles
from drydock.report.monitor.run_log import RunLog
from drydock.report.monitor.run_state import RunState, time_left
from drydock.report.monitor.settings import RunSettings, SettingsFile
from drydock.report.monitor.step_rows import StepRows


@dataclass(slots=True)
class RunWatch:
    """Follows the run in the folder `root`. files_of: the layout of a folder, given a run's name.

    The folder may be moved away and made anew while it is watched: then another run is in it, and that is followed.
    """

    root: Path
    files_of: Callable[[Path, str], RunFiles]
    files: RunFiles = field(init=False)
    _settings: RunSettings | None = None
    _config: SettingsFile = field(init=False)
    _metrics: JsonLines = field(init=False)
    _diagnosis: JsonLines = field(init=False)
    _dropped: JsonLines = field(init=False)
    _log: RunLog = field(init=False)
    _rows: StepRows = field(default_factory=StepRows)
    _findings: Findings = field(default_factory=Findings)
    _tasks: list[dict[str, Any]] = field(default_factory=list)
    _outcomes: tuple[OutcomeCount, ...] = ()

    def __post_init__(self) -> None:
        self._name_files(self.root.name)

    def poll(self) -> RunState:
        """The run as it is now. Raises UserError for what is there and may not be read."""
        try:
            return self._poll()
        except OSError as error:
            raise UserError(f"{error.filename or self.root} cannot be read: {error.strerror}") from None

    def _poll(self) -> RunState:
        self._read_settings()
        self._log.poll()
        self._read_metrics()
        anew, lines = self._diagnosis.poll()
        self._findings = Findings() if anew else self._findings
        for line in lines:
            self._findings.add(line)
        anew, tasks = self._dropped.poll()
        self._tasks = tasks if anew else self._tasks + tasks
        return self._state()

    def _read_settings(self) -> None:
        found = self._config.poll()
        if found is not None and (self._settings is None or found.run_name != self._settings.run_name):
            self._name_files(found.run_name)
        self._settings = found or self._settings

    def _name_files(self, run_name: str) -> None:
        self.files = files = self.files_of(self.root, run_name)
        self._config = SettingsFile(files.config)
        self._metrics, self._diagnosis = JsonLines(files.metrics), JsonLines(files.diagnosis)
        self._dropped, self._log = JsonLines(files.dropped_tasks), RunLog(files.log)
        self._rows, self._findings, self._tasks, self._outcomes = StepRows(), Findings(), [], ()

    def _read_metrics(self) -> None:
        anew, records = self._metrics.poll()
        if anew:
            self._rows, self._outcomes = StepRows(), ()
        steps = len(self._rows.rows)
        for record in records:
            self._rows.add(record)
        if len(self._rows.rows) > steps:
            folder = self.files.trajectories(self._rows.step, "train")
            self._outcomes = outcomes_of(self._rows.last, [folder])

    def _state(self) -> RunState:
        rows, settings = self._rows, self._settings
        life = life_of(self.files.launcher_pid, self.files.launcher, self._log.ended)
        running = life.life is Life.RUNNING
        steps = self._log.steps or (settings.most_steps if settings and rows.rows else None)
        since, step_s, rest = _age_s(self.files.metrics), rows.step_s, None
        if running and settings and steps and step_s is not None and since is not None:
            rest = time_left(settings, rows.step, steps, step_s, rows.evaluation_s, since)
        return RunState(
            root=self.root,
            settings=settings,
            life=life,
            job_id=_text(self.files.job_id),
            step=rows.step,
            steps=steps,
            since_last_s=since if rows.rows or rows.evaluations else None,
            after_evaluation=rows.evaluated_last,
            step_s=step_s,
            rest_s=rest,
            under_way=_count(self.files.turns) if running else 0,
            rows=tuple(rows.rows),
            evaluations=tuple(rows.evaluations),
            outcomes=self._outcomes,
            standing=self._findings.standing(rows.step),
            past=self._findings.past(rows.step),
            dropped=tuple(self._tasks),
            used=rows.used,
            log_tail=tuple(self._log.tail),
            problems=tuple(self._problems()),
        )

    def _problems(self) -> list[str]:
        if not self.root.is_dir():
            return [f"{self.root} is gone: it was moved or deleted"]
        problems = [] if self.files.config.is_file() else [f"there is no config.toml in {self.root} (any more)"]
        if self._settings is None and not problems:
            problems.append(f"{self.files.config} cannot be read as a run's configuration")
        for lines in (self._metrics, self._diagnosis, self._dropped):
            if lines.unreadable:
                problems.append(f"{amount(lines.unreadable, 'line')} of {lines.file.name} cannot be read and left out")
        return problems


def _age_s(file: Path) -> float | None:
    """Seconds since the file was last written; None where it is not there."""
    try:
        return max(0.0, time.time() - file.stat().st_mtime)
    except OSError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _count(folder: Path) -> int:
    try:
        return sum(file.suffix == ".jsonl" for file in folder.iterdir())
    except OSError:
        return 0

"""The run's diagnosis: each step is looked at by every check that is not off.

A warning is printed when it is new and when it is gone, and written down in every step that it holds. A check that
stops the run does so only when the loop calls `stop_if_told`, after it has written what the step was about.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from drydock.errors import DrydockError
from drydock.rollout.trajectory import Trajectory, path_for
from drydock.training.diagnosis.base import Symptom
from drydock.training.diagnosis.facts import StepFacts, StepSummary, summary_of
from drydock.training.diagnosis.finding import DiagnosisStop, StepFinding
from drydock.training.diagnosis.findings_file import FindingsFile
from drydock.training.diagnosis.gradient import refused_update
from drydock.training.diagnosis.registry import CHECKS
from drydock.training.diagnosis_config import DiagnosisConfig
from drydock.training.run_folder import RunFolder

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Diagnosis:
    """Checks of a run's steps, in order.

    note: prints a line for the user. steps: what is remembered of the steps so far; `recall` makes it for a run that
    goes on.
    """

    config: DiagnosisConfig
    folder: RunFolder
    note: Callable[[str], None]
    steps: list[StepSummary] = field(default_factory=list)
    _standing: dict[str, StepFinding] = field(default_factory=dict)

    def check(self, facts: StepFacts) -> list[StepFinding]:
        """What is wrong with the step. New findings are printed, all are written to diagnosis.jsonl."""
        self.steps.append(summary_of(facts))
        findings = []
        for name, check in CHECKS.items():
            level = getattr(self.config, name)
            symptom = check(facts, self.steps, self.config) if level != "off" else None
            if symptom is not None:
                findings.append(self._finding(facts.step, name, level, symptom))
        FindingsFile(self.folder.diagnosis).write(findings)
        self._tell(facts.step, findings)
        return findings

    def stop_if_told(self, findings: Sequence[StepFinding]) -> None:
        """Raise DiagnosisStop when one of the step's findings is to stop the run."""
        stopping = [finding for finding in findings if finding.level == "stop"]
        if stopping:
            settings = " ".join(f"diagnosis.{finding.check}=warn" for finding in stopping)
            raise DiagnosisStop(stopping, f"With {settings} the run would have gone on")

    def stop_if_known(self, step: int, error: DrydockError) -> None:
        """Raise DiagnosisStop from an error that ended the step, where a check knows what it means.

        A trainer that refuses an update whose gradient is no number does so whatever `diagnosis.gradient` is.
        """
        symptom = refused_update(error)
        if symptom is not None:
            finding = self._finding(step, "gradient", "stop", symptom)
            FindingsFile(self.folder.diagnosis).write([finding])
            raise DiagnosisStop([finding]) from error

    def _finding(self, step: int, check: str, level: str, symptom: Symptom) -> StepFinding:
        paths = [self._path(trajectory) for trajectory in symptom.rollouts]
        names = [f"{self.folder.metrics.name}: {', '.join(symptom.metrics)}"] if symptom.metrics else []
        return StepFinding(
            step=step,
            check=check,
            level=cast("Literal['warn', 'stop']", level),
            cause=symptom.cause,
            blame=symptom.blame,
            remedy=symptom.remedy,
            evidence=(*paths, *names),
            about=symptom.about,
        )

    def _path(self, trajectory: Trajectory) -> str:
        folder = self.folder.trajectories(trajectory.step, trajectory.split).relative_to(self.folder.root)
        return str(path_for(folder, trajectory.task, trajectory.repetition, failed=trajectory.outcome.is_failure))

    def _tell(self, step: int, findings: Sequence[StepFinding]) -> None:
        found = {finding.check: finding for finding in findings}
        for name, finding in found.items():
            before = self._standing.get(name)
            if before is None or before.about != finding.about:
                log.warning("diagnosis of step %d: %s", step, finding)
                self.note(f"step {step}: {'warning' if finding.level == 'warn' else 'stop'}: {finding}")
        for name in self._standing.keys() - found.keys():
            self.note(f"step {step}: {name} is seen no more")
        self._standing = found


def diagnosis_metrics(findings: Sequence[StepFinding]) -> dict[str, int]:
    """`diagnosis/<check>`: 1 for each check that saw something."""
    return {f"diagnosis/{finding.check}": 1 for finding in findings}

"""What a run says when a check sees something: a finding, and the error with which it stops."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from drydock.errors import Blame, DrydockError

EXIT_CODE = 3
"""With what `drydock train` ends when a check stopped it."""


@dataclass(frozen=True, slots=True)
class StepFinding:
    """What is wrong with a step.

    check: name of the check. level: what it does. cause: one sentence with figures. evidence: paths in the run's
    folder, and names in metrics.jsonl. about: what it is about, where a check can be about several things.
    """

    step: int
    check: str
    level: Literal["warn", "stop"]
    cause: str
    blame: Blame
    remedy: str
    evidence: tuple[str, ...] = ()
    about: str = ""

    def __str__(self) -> str:
        shown = f"; see {', '.join(self.evidence)}" if self.evidence else ""
        return f"{self.check} (blame: {self.blame}): {self.cause}; {self.remedy}{shown}"

    def to_json(self) -> str:
        """A line of diagnosis.jsonl."""
        return json.dumps(asdict(self))


class DiagnosisStop(DrydockError):
    """A check ended the run after a step; what there is of the step is on disk."""

    def __init__(self, findings: Sequence[StepFinding], hint: str = "") -> None:
        first = findings[0]
        self.findings = tuple(findings)
        self.blame = first.blame
        said = "; and ".join(map(str, findings))
        super().__init__(f"stopped by diagnosis after step {first.step}: {said}" + (f". {hint}" if hint else ""))

    @property
    def exit_code(self) -> int:
        """One of its own, so that a script can tell it from a run that broke."""
        return EXIT_CODE

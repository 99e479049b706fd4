"""What the diagnosis found so far: one entry for each check and thing that it was about, not one for each step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """cause, remedy, evidence: of the last step in which it was seen. steps: in how many it was."""

    check: str
    about: str
    level: str
    blame: str
    cause: str
    remedy: str
    evidence: tuple[str, ...]
    first_step: int
    last_step: int
    steps: int

    @property
    def where(self) -> str:
        """The steps in which it was seen, in words."""
        if self.steps == 1:
            return f"step {self.last_step}"
        return f"{self.steps} times in steps {self.first_step} to {self.last_step}"


@dataclass(slots=True)
class Findings:
    """Takes in the lines of diagnosis.jsonl as they come."""

    _found: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in one finding of one step."""
        said = {name: str(line.get(name) or "") for name in ("check", "about", "level", "blame", "cause", "remedy")}
        evidence = line.get("evidence")
        key = (said["check"], said["about"])
        before = self._found.get(key)
        self._found[key] = Finding(
            **said,
            evidence=tuple(map(str, evidence)) if isinstance(evidence, list) else (),
            first_step=before.first_step if before else line["step"],
            last_step=line["step"],
            steps=before.steps + 1 if before else 1,
        )

    def standing(self, step: int) -> tuple[Finding, ...]:
        """Those of `step` or later, that stop a run before those that warn."""
        return self._sorted(finding for finding in self._found.values() if finding.last_step >= step)

    def past(self, step: int) -> tuple[Finding, ...]:
        """Those that were last seen before `step`, the latest first."""
        return self._sorted(finding for finding in self._found.values() if finding.last_step < step)

    @staticmethod
    def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
        return tuple(sorted(findings, key=lambda one: (one.level != "stop", -one.last_step, one.check)))

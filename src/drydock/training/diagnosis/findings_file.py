"""diagnosis.jsonl: every finding of every step, one JSON object a line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drydock.atomic import replace_file
from drydock.training.diagnosis.finding import StepFinding


class FindingsFile:
    """Appends to the file, which is only there when there is something to say."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, findings: Iterable[StepFinding]) -> None:
        """Append a line for each."""
        lines = "".join(f"{finding.to_json()}\n" for finding in findings)
        if lines:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(lines)

    def read(self) -> list[dict[str, Any]]:
        """All findings so far, in order."""
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text(encoding="utf-8").splitlines()]

    def keep_until(self, step: int) -> None:
        """Drop the findings of later steps: a run that goes on from `step` makes them again."""
        if self._file.exists():
            kept = [one for one in self.read() if one["step"] <= step]
            with replace_file(self._file) as temporary:
                temporary.write_text("".join(f"{json.dumps(one)}\n" for one in kept), encoding="utf-8")

"""Records of a file with one JSON object a line, each read once; what is no record is counted, never guessed at."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drydock.report.monitor.line_follower import LineFollower
from drydock.report.monitor.step_rows import number


@dataclass(slots=True)
class JsonLines:
    """Reads new records at each `poll`. unreadable: lines of the present file that are no JSON object with a `step`."""

    file: Path
    unreadable: int = 0
    _lines: LineFollower = field(init=False)

    def __post_init__(self) -> None:
        self._lines = LineFollower(self.file)

    def poll(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether earlier records do not hold any more, and the new ones. Raises UserError."""
        new = self._lines.poll()
        if new.anew:
            self.unreadable = 0
        found = [record for line in new.lines if line.strip() and (record := self._record(line)) is not None]
        return new.anew, found

    def _record(self, line: bytes) -> dict[str, Any] | None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and type(step := record.get("step")) is int and number(step) is not None:
            return record
        self.unreadable += 1
        return None

"""What a run's log says about the run, read once and then as it grows: its steps, its end, its last lines."""

import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from drydock.report.monitor.life import Life, RunLife
from drydock.report.monitor.line_follower import LineFollower
from drydock.report.printable import printable
from drydock.report.run_marks import FAILED, FINISHED, STEPS, STOPPED

TAIL_LINES = 200
_LINE_CHARS = 600
_DIGITS = 9
"""A longer number is no count of steps."""
_SENTENCE = re.compile(r"\S+ \S+ [A-Z]+ (drydock\.[\w.]+): (.*)")
_METRICS = "drydock.metrics"
_UNKNOWN = RunLife(Life.OVER)


@dataclass(slots=True)
class RunLog:
    """steps: of the whole run, None where the log does not say. ended: how it ended, as far as the log knows.

    tail: the last lines, long ones cut, without those that only repeat metrics.jsonl.
    """

    file: Path
    steps: int | None = None
    ended: RunLife = _UNKNOWN
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=TAIL_LINES))
    _lines: LineFollower = field(init=False)

    def __post_init__(self) -> None:
        self._lines = LineFollower(self.file)

    def poll(self) -> None:
        """Take in what is new. Raises UserError for a log that cannot be read."""
        new = self._lines.poll()
        if new.anew:
            self.steps, self.ended = None, _UNKNOWN
            self.tail.clear()
        for line in new.lines:
            self._take(line.decode(errors="replace"))

    def _take(self, line: str) -> None:
        said = _SENTENCE.match(line)
        if said is None or said[1] != _METRICS:
            self.tail.append(printable(line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]} …"))
        if said is not None:
            self._hear(said[2])

    def _hear(self, sentence: str) -> None:
        if sentence.startswith(STEPS):
            number = sentence.removeprefix(STEPS).strip()
            self.steps, self.ended = int(number) if number.isdecimal() and len(number) <= _DIGITS else None, _UNKNOWN
        elif sentence == FINISHED:
            self.ended = RunLife(Life.FINISHED)
        elif sentence == STOPPED:
            self.ended = RunLife(Life.STOPPED)
        elif sentence.startswith(FAILED):
            self.ended = RunLife(Life.FAILED, cause=printable(sentence.removeprefix(FAILED).removeprefix(":").strip()))

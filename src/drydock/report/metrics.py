"""metrics.jsonl and the log lines that tools of the published recipes grep for.

One JSON object a line with `step` and the published metric names. The log prints a step's metrics as a Python dict,
so that `'reward/avg_raw_reward'` in it marks a step as done.
"""

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drydock.atomic import replace_file

log = logging.getLogger("drydock.metrics")


class MetricsFile:
    """Appends to metrics.jsonl, one flushed line a record; NaN and infinity become null."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, step: int, metrics: dict[str, Any]) -> None:
        """Write and log the metrics of `step` (0: before the first step)."""
        record = {"step": step, **{key: _plain(value) for key, value in metrics.items()}}
        with self._file.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
        log.info("step %d: %s", step, {key: value for key, value in record.items() if key != "step"})

    def keep_until(self, step: int) -> None:
        """Drop the records of later steps: a run that goes on from `step` writes them again."""
        kept = [record for record in self.read() if record["step"] <= step]
        with replace_file(self._file) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in kept))

    def read(self) -> list[dict[str, Any]]:
        """All records so far, in order."""
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines() if line.strip()]


def series(records: Sequence[dict[str, Any]], name: str) -> tuple[tuple[int, float], ...]:
    """(step, value) of each record that has a value of this name."""
    return tuple((record["step"], record[name]) for record in records if record.get(name) is not None)


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str | int) or value is None:
        return value
    number = float(value)
    return round(number, 8) if math.isfinite(number) else None

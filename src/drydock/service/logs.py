"""A sub-job's two log files and how they are read back in pages.

`execution.jsonl` holds one structured record a line ({"ts","level","logger","msg"}); `console.log` holds whatever the
process printed. A page's cursor is the pair of byte offsets read so far, as an opaque string, so a page can be asked
for again; only whole lines are handed out.
"""

import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drydock.service.problems import Refusal

EXECUTION = "execution.jsonl"
CONSOLE = "console.log"
DEFAULT_LINES = 500
MAX_LINES = 5000
_MAX_PAGE_BYTES = 4 << 20
_CURSOR = re.compile(r"e(\d{1,18})c(\d{1,18})")


class JsonLines(logging.Formatter):
    """One log record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without its line end."""
        entry = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def tail(log_dir: Path, cursor: str | None, max_lines: int | None) -> dict[str, Any]:
    """One page: {"entries", "next_cursor", "eof"}; an empty cursor reads from the start. Raises Refusal."""
    match = _CURSOR.fullmatch(cursor) if cursor else None
    if cursor and match is None:
        raise Refusal(422, f"cursor: {cursor!r} is not one that this service made")
    offsets = [int(match[1]), int(match[2])] if match else [0, 0]
    left = max(1, min(max_lines or DEFAULT_LINES, MAX_LINES))
    entries: list[dict[str, Any]] = []
    ends: list[bool] = []
    for index, name in enumerate((EXECUTION, CONSOLE)):
        lines, offsets[index], end = _read(log_dir / name, offsets[index], left)
        left -= len(lines)
        ends.append(end)
        entries.extend(_entry(line) for line in lines)
    return {"entries": entries, "next_cursor": f"e{offsets[0]}c{offsets[1]}", "eof": all(ends)}


def last_lines(log_dir: Path, count: int) -> list[str]:
    """The last lines of the console, or of the structured log where the console is empty."""
    for name in (CONSOLE, EXECUTION):
        path = log_dir / name
        if path.exists() and path.stat().st_size:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 16_384))
                lines = file.read().decode(errors="replace").splitlines()
            return [line.strip()[:500] for line in lines if line.strip()][-count:]
    return []


def _read(path: Path, offset: int, max_lines: int) -> tuple[list[bytes], int, bool]:
    if not path.exists():
        return [], offset, True
    if max_lines <= 0:
        return [], offset, path.stat().st_size <= offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(_MAX_PAGE_BYTES)
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.splitlines(keepends=True)[:max_lines]
    taken = sum(map(len, lines))
    return [line.rstrip(b"\r\n") for line in lines], offset + taken, taken == len(data)


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {"_raw": line.decode(errors="replace")}
    return entry if isinstance(entry, dict) else {"_raw": line.decode(errors="replace")}

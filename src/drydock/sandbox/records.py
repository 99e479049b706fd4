"""One small file per running sandbox under the state directory: who owns it, and what to look for when the owner dies.

A process is named by its pid and start time together, so a pid that was given to somebody else is never mistaken.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from drydock.atomic import replace_file


@dataclass(frozen=True, slots=True)
class Record:
    """owner and init are (pid, start time in clock ticks since boot); directory holds files on disk, or is None."""

    name: str
    owner: tuple[int, int]
    init: tuple[int, int]
    directory: str | None = None


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which process `pid` started; None when there is no such process (or a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def write_record(state_dir: Path, name: str, init_pid: int, directory: Path | None = None) -> None:
    """Record a sandbox of this process."""
    owner = (os.getpid(), start_time(os.getpid()) or 0)
    record = Record(name, owner, (init_pid, start_time(init_pid) or 0), str(directory) if directory else None)
    with replace_file(_path(state_dir, name), durable=False) as temporary:
        temporary.write_text(json.dumps(asdict(record)))


def forget(state_dir: Path, name: str) -> None:
    """Remove a record; does nothing when there is none."""
    _path(state_dir, name).unlink(missing_ok=True)


def read_records(state_dir: Path) -> list[Record]:
    """All records under a state directory; a file that is no record is left out."""
    records = []
    for path in sorted(state_dir.glob("*.json")):
        try:
            data = json.loads(path.read_text())
            records.append(Record(path.stem, tuple(data["owner"]), tuple(data["init"]), data["directory"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return records


def _path(state_dir: Path, name: str) -> Path:
    return state_dir / f"{name}.json"

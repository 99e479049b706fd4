"""One small file per running sandbox under the state directory: who owns it, and what to look for when the owner dies.

The owner holds a lock on the file for as long as it lives. The kernel gives the lock back with the process, however it
ends, and shows it to every process of the machine, in whatever container: a record whose lock can be taken has no
owner. The record is there before the sandbox's first directory, process or control group, and goes after the last.

A process is named by its pid and start time together, so a pid that was given to somebody else is never mistaken.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from drydock.errors import SandboxError

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Record:
    """owner and init are (pid, start time in clock ticks since boot), init None before it is started.

    directory: files on disk, or None. groups: control group directories. pid_space: the pid namespace of the pids.
    """

    name: str
    owner: tuple[int, int]
    init: tuple[int, int] | None = None
    directory: str | None = None
    groups: tuple[str, ...] = ()
    pid_space: int = 0


class Claim:
    """A record of this process, locked."""

    def __init__(self, state_dir: Path, name: str, directory: Path | None = None) -> None:
        """Write the record. Raises SandboxError when the state directory cannot be written."""
        self._path = _path(state_dir, name)
        owner = (os.getpid(), start_time(os.getpid()) or 0)
        self.record = Record(name, owner, directory=str(directory) if directory else None, pid_space=_pid_space())
        self._descriptor = self._create(state_dir)

    def update(self, *, init_pid: int | None = None, groups: tuple[Path, ...] | None = None) -> None:
        """Record what has been started since."""
        if init_pid is not None:
            self.record = replace(self.record, init=(init_pid, start_time(init_pid) or 0))
        if groups is not None:
            self.record = replace(self.record, groups=tuple(map(str, groups)))
        self._write(self._descriptor)

    def release(self) -> None:
        """Remove the record: nothing of the sandbox is left."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _create(self, state_dir: Path) -> int:
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        for _ in range(_ATTEMPTS):
            state_dir.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._write(descriptor)
                temporary.rename(self._path)
                return descriptor
            except (BlockingIOError, FileNotFoundError):  # a reaper is looking at the file, or took it away
                os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        raise SandboxError(f"a sandbox cannot be recorded in {state_dir}")

    def _write(self, descriptor: int) -> None:
        text = json.dumps(asdict(self.record)).encode()
        os.pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which process `pid` started; None when there is no such process (or a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def read_record(path: Path) -> Record | None:
    """The record in a file; None for a file that is no record."""
    try:
        data = json.loads(path.read_text())
        return Record(
            path.stem,
            tuple(data["owner"]),
            tuple(data["init"]) if data.get("init") else None,
            data["directory"],
            tuple(data.get("groups", ())),
            data.get("pid_space", 0),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_records(state_dir: Path) -> list[Record]:
    """All records under a state directory; a file that is no record is left out."""
    found = [read_record(path) for path in sorted(state_dir.glob("[!.]*.json"))]
    return [record for record in found if record is not None]


def in_this_pid_space(record: Record) -> bool:
    """Whether the record's pids mean here what they meant to its owner."""
    return record.pid_space in (0, _pid_space())


def _pid_space() -> int:
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116


def _path(state_dir: Path, name: str) -> Path:
    return state_dir / f"{name}.json"

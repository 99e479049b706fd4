"""Which process drives a run, so that another one that has its number is never taken for it.

`launcher.pid` in the run's folder is the bare number, for `kill`. `launcher.json` beside it names the process: the same
number stands for others after a restart of the machine, and on every other machine that sees the folder.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from drydock.sandbox.records import start_time

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """boot_id: drawn by the kernel when its machine started. started: clock ticks from then to the process's start."""

    pid: int
    boot_id: str
    started: int

    @classmethod
    def this(cls) -> Self | None:
        """The process that asks; None where the kernel does not tell."""
        boot_id, started = _boot_id(), start_time(os.getpid())
        return None if boot_id is None or started is None else cls(os.getpid(), boot_id, started)

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """None for a file that is not there, or no such record."""
        try:
            said = json.loads(file.read_text(encoding="utf-8"))
            return cls(int(said["pid"]), str(said["boot_id"]), int(said["started"]))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def write(self, file: Path) -> None:
        """Write the record for `read`."""
        file.write_text(f"{json.dumps(asdict(self))}\n", encoding="utf-8")

    @property
    def is_there(self) -> bool:
        """Whether this very process goes on, on this machine."""
        return self.boot_id == _boot_id() and self.started == start_time(self.pid)


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None

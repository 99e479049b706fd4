"""Whether a run goes on, and if not, how it ended: from its process, and else from what its log says last."""

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from drydock.report.driver_process import DriverProcess
from drydock.sandbox.records import start_time

_SURE_S = 60.0
"""A process that began so long after `launcher.pid` was written is another one, which got the number later."""


class Life(StrEnum):
    """What a run is doing, or how it ended."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    KILLED = "killed"
    OVER = "over"
    """Its log is of a version that does not say how it ended."""


@dataclass(frozen=True, slots=True)
class RunLife:
    """pid: of its driver, while `launcher.pid` is there. cause: why it failed, as its log says."""

    life: Life
    pid: int | None = None
    cause: str = ""

    def __str__(self) -> str:
        match self.life:
            case Life.RUNNING:
                return f"running (process {self.pid})"
            case Life.KILLED:
                return f"killed: its process {self.pid} is gone, or on another machine"
            case Life.OVER:
                return "over, its log does not say how"
            case Life.FAILED:
                return f"failed: {self.cause}" if self.cause else "failed, its log says why"
            case _:
                return self.life.value


def life_of(launcher_pid: Path, launcher: Path, ended: RunLife) -> RunLife:
    """The run whose driver's number stands in `launcher_pid`; `ended` is what its log says, if it has ended.

    launcher: which process that is. Where a version of Drydock without this file wrote the folder, the process with the
    number is taken for the driver unless it is younger than the number.
    """
    try:
        written = launcher_pid.stat().st_mtime
        pid = int(launcher_pid.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ended
    driver = DriverProcess.read(launcher)
    goes_on = driver.is_there if driver is not None and driver.pid == pid else _is_the_writer(pid, written)
    return RunLife(Life.RUNNING if goes_on else Life.KILLED, pid)


def _is_the_writer(pid: int, written: float) -> bool:
    ticks = start_time(pid)
    if ticks is None:
        return False
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s < written + _SURE_S

"""What earlier and other runs left or have going: drivers on this machine, and what is in the run's folder."""

import os
from collections.abc import Sequence
from pathlib import Path

from drydock.finding import Finding, Level
from drydock.own_directory import abandoned_directories
from drydock.training.run_folder import RunFolder
from drydock.training.run_lock import LiveDriver, live_drivers

_SHOWN = 5


def check_drivers(state_dir: Path, folder: RunFolder | None = None) -> list[Finding]:
    """One finding: the other drivers of this user; one in this run's folder fails."""
    drivers = [driver for driver in live_drivers(state_dir) if driver.pid != os.getpid()]
    here = [driver for driver in drivers if folder is not None and driver.run_folder == folder.root]
    if here:
        detail = f"a run is going on in {here[0].run_folder} (process {here[0].pid})"
        return [Finding("drivers", Level.FAIL, detail, f"wait for it, `kill {here[0].pid}`, or another folder")]
    if drivers:
        detail = f"{len(drivers)} other runs on this machine: {_listed(drivers)}"
        return [Finding("drivers", Level.WARN, detail, "they share its processors and memory: let them end, or go on")]
    return [Finding("drivers", Level.PASS, "no other run on this machine")]


def check_run_folder(folder: RunFolder) -> list[Finding]:
    """What a killed driver left in the run's folder. Raises ConfigError for a folder that cannot become the run's."""
    folder.check()
    found = [_launcher(folder), _turn_logs(folder)]
    return [finding for finding in found if finding is not None] or [
        Finding(
            "run folder", Level.PASS, f"{folder.root} {'holds an earlier run' if folder.config.exists() else 'is free'}"
        )
    ]


def check_temporary_files() -> list[Finding]:
    """One finding: temporary directories of drivers that were killed."""
    left = abandoned_directories()
    detail = f"{len(left)} temporary directories of killed drivers" if left else "none left by killed drivers"
    remedy = "run `drydock reap`; the next run does it too"
    return [Finding("temporary files", Level.WARN if left else Level.PASS, detail, remedy)]


def _launcher(folder: RunFolder) -> Finding | None:
    if not folder.launcher_pid.exists():
        return None
    job = folder.job_id.read_text().strip() if folder.job_id.exists() else None
    detail = f"the driver of the run in {folder.root} was killed ({folder.launcher_pid} names a process that is gone)"
    cancel = f"its job {job} may still hold GPUs: `drydock jobs cancel {job}`; " if job else ""
    return Finding("launcher.pid", Level.WARN, detail, f"{cancel}then start again, or delete the file")


def _turn_logs(folder: RunFolder) -> Finding | None:
    logs = sorted(folder.turns.glob("*.jsonl"))
    if not logs:
        return None
    detail = f"{len(logs)} sessions of the chat proxy were cut off; their turns are in {folder.turns}"
    return Finding("sessions", Level.WARN, detail, f"`rm -r {folder.turns}` when nobody needs them")


def _listed(drivers: Sequence[LiveDriver]) -> str:
    shown = [f"process {driver.pid} in {driver.run_folder}" for driver in drivers[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(drivers) - _SHOWN} more" if len(drivers) > _SHOWN else "")

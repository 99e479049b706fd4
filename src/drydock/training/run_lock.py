"""One run at a time in a run folder: an advisory lock that dies with its process.

Runs in different folders go on beside each other: each sandbox is locked by its owner, so none reaps another's.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import UserError
from drydock.file_lock import try_lock
from drydock.sandbox.records import start_time


@dataclass(frozen=True, slots=True)
class LiveDriver:
    """A process that holds the lock of a run folder."""

    pid: int
    run_folder: Path


@contextmanager
def run_lock(state_dir: Path, run_folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder. Raises UserError when another run holds it."""
    locks = state_dir / "runs"
    try:
        locks.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the state folder {state_dir} cannot be used: {error}; set sandbox.state_dir to another"
        ) from error
    file = locks / f"{hashlib.sha256(os.fsencode(run_folder.resolve())).hexdigest()[:16]}.lock"
    descriptor = try_lock(file)
    if descriptor is None:
        raise UserError(f"another run is starting or going on in {run_folder}: wait for it, or choose another folder")
    try:
        said = {"pid": os.getpid(), "started": start_time(os.getpid()), "run_folder": str(run_folder.resolve())}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(said).encode(), 0)
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)


def live_drivers(state_dir: Path) -> list[LiveDriver]:
    """The processes that hold a lock below `state_dir`; takes no lock itself, so that it never stops one."""
    found = []
    for file in sorted((state_dir / "runs").glob("*.lock")):
        try:
            said = json.loads(file.read_text())
            driver = LiveDriver(int(said["pid"]), Path(said["run_folder"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if start_time(driver.pid) == said["started"]:
            found.append(driver)
    return found

"""One run at a time on a driver: an advisory lock that dies with its process.

Two drivers on one machine would share its sandboxes' state (a start reaps what a killed driver left) and its cores, so
the second one is refused, naming the first.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drydock.errors import UserError


@contextmanager
def driver_lock(state_dir: Path, run_folder: Path) -> Iterator[None]:
    """Hold the driver's lock. Raises UserError when another run holds it."""
    state_dir.mkdir(parents=True, exist_ok=True)
    file = state_dir / "driver.lock"
    with file.open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(_refusal(file)) from None
        stream.truncate(0)
        stream.write(json.dumps({"pid": os.getpid(), "run_folder": str(run_folder)}))
        stream.flush()
        yield


def _refusal(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
        who = f"process {holder['pid']}, folder {holder['run_folder']}"
    except (ValueError, KeyError, OSError):
        who = f"see {file}"
    return (
        f"another run is going on on this driver ({who}): wait for it, stop it with "
        "`kill -TERM` on that process, or give this run its own sandbox.state_dir"
    )

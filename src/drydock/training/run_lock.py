"""One run at a time in a run folder: an advisory lock that dies with its process.

Runs in different folders go on beside each other: each sandbox is locked by its owner, so none reaps another's.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drydock.errors import UserError
from drydock.file_lock import try_lock


@contextmanager
def run_lock(state_dir: Path, run_folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder. Raises UserError when another run holds it."""
    locks = state_dir / "runs"
    locks.mkdir(parents=True, exist_ok=True)
    file = locks / f"{hashlib.sha256(os.fsencode(run_folder.resolve())).hexdigest()[:16]}.lock"
    descriptor = try_lock(file)
    if descriptor is None:
        raise UserError(f"another run is starting or going on in {run_folder}: wait for it, or choose another folder")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)

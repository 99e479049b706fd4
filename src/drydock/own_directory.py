"""Temporary directories that go with their process: at its end, or, when it was killed, at the next reaping.

The process holds a lock on a file in the directory, which the kernel gives back however the process ends.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from drydock.file_lock import try_lock, try_lock_existing

_OWNER = ".owner"


def own_directory(kind: str) -> Path:
    """A new directory `drydock-KIND-…` below the system's directory for temporary files."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=f"drydock-{kind}-"))
        lock = try_lock(directory / _OWNER)
        if lock is not None:  # else a reaper came upon it before it was locked, and takes it away
            atexit.register(_remove, directory, lock)
            return directory


def remove_abandoned() -> list[str]:
    """Remove the directories of this user's processes that are no more; a line about each."""
    removed = []
    for file in Path(tempfile.gettempdir()).glob(f"drydock-*/{_OWNER}"):
        directory = file.parent
        try:
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            lock = try_lock_existing(file)
        except OSError:
            continue
        if lock is not None:
            _remove(directory, lock)
            removed.append(f"temporary directory {directory} deleted")
    return removed


def _remove(directory: Path, lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)

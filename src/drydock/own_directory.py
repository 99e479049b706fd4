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


def abandoned_directories() -> list[Path]:
    """The directories of this user's processes that are no more; nothing is removed."""
    found = []
    for file in Path(tempfile.gettempdir()).glob(f"drydock-*/{_OWNER}"):
        lock = _lock_of_abandoned(file)
        if lock is not None:
            os.close(lock)
            found.append(file.parent)
    return found


def remove_abandoned() -> list[str]:
    """Remove the directories of this user's processes that are no more; a line about each."""
    removed = []
    for file in Path(tempfile.gettempdir()).glob(f"drydock-*/{_OWNER}"):
        lock = _lock_of_abandoned(file)
        if lock is not None:
            _remove(file.parent, lock)
            removed.append(f"temporary directory {file.parent} deleted")
    return removed


def _lock_of_abandoned(file: Path) -> int | None:
    """The lock of a directory of this user whose process is gone, else None."""
    try:
        if file.parent.is_symlink() or file.parent.stat().st_uid != os.geteuid():
            return None
        return try_lock_existing(file)
    except OSError:
        return None


def _remove(directory: Path, lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)

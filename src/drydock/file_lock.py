"""Advisory locks on files, which the kernel gives back when their holder ends, however it ends."""

import fcntl
import os
from pathlib import Path


def try_lock(file: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """A descriptor that holds a lock on `file` (created where missing); None when others hold it.

    kind: fcntl.LOCK_EX or fcntl.LOCK_SH. A file that its holder removes meanwhile is never taken for the one that
    stands there now.
    """
    return _locked(file, os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), kind)


def try_lock_existing(file: Path) -> int | None:
    """A descriptor that holds the exclusive lock on `file`; None when others hold it or there is no such file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    return _locked(file, descriptor, fcntl.LOCK_EX)


def _locked(file: Path, descriptor: int, kind: int) -> int | None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None

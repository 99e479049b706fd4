"""Advisory locks on files, which the kernel gives back when their holder ends, however it ends."""

import fcntl
import os
from pathlib import Path


def try_lock(file: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """A descriptor that holds a lock on `file` (created where missing); None when others hold it.

    kind: fcntl.LOCK_EX or fcntl.LOCK_SH. A file that its holder removes meanwhile is never taken for the one that
    stands there now.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None

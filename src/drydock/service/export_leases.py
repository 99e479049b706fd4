"""Which checkpoints are being fetched: an export's addresses open their files for a while, so until then it is in use.

A lease is an empty file beside the checkpoint's folder whose time of modification is when the addresses end. Like
them it outlives a restart of the service.
"""

import os
import time
from pathlib import Path


def take_lease(folder: Path, expires_at: float) -> None:
    """Mark the checkpoint as in use until `expires_at` (seconds since 1970)."""
    lease = _lease(folder)
    lease.touch()
    os.utime(lease, (expires_at, expires_at))


def leased(folder: Path) -> bool:
    """Whether addresses of the checkpoint's files still open them."""
    try:
        return _lease(folder).stat().st_mtime > time.time()
    except FileNotFoundError:
        return False


def drop_lease(folder: Path) -> None:
    """Forget the lease of a checkpoint that is gone."""
    _lease(folder).unlink(missing_ok=True)


def _lease(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.exported")

"""The folder of the workers' sockets, and the worker processes that listen there.

Not below the state folder: the name of a Unix socket may have about 100 characters only. The folder's name is made
from the state folder's, so that a restarted service finds it again, and belongs to this user alone.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path

from drydock.errors import UserError

_LONGEST_PATH = 80
_WORKER_MODULE = b"drydock.service.worker"
GONE_S = 5.0


def run_dir(state_dir: Path) -> Path:
    """The folder of this state folder's service, made when missing. Raises UserError when another user holds it."""
    mark = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
    name = f"drydock-{os.getuid()}-{mark}"
    parent = Path(tempfile.gettempdir())
    if len(str(parent / name)) > _LONGEST_PATH:
        parent = Path("/tmp")
    folder = parent / name
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{folder} belongs to another user or is no folder: remove it, or set TMPDIR to another place")
    folder.chmod(0o700)
    return folder


def worker_pids(folder: Path) -> dict[int, Path]:
    """Running worker processes whose socket is in `folder`, each with its socket; empty where there is no /proc."""
    found: dict[int, Path] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = entry.stat().st_uid == os.getuid()
        except OSError:
            continue
        if not ours or _WORKER_MODULE not in words[:4]:
            continue
        path = Path(os.fsdecode(words[words.index(_WORKER_MODULE) + 1]))
        if path.parent == folder:
            found[int(entry.name)] = path
    return found


async def kill_leftovers(folder: Path, kept: Collection[Path]) -> list[int]:
    """Kills the workers of `folder` whose socket is not in `kept`, and waits until they are gone; their pids."""
    left = {pid for pid, path in worker_pids(folder).items() if path not in kept}
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_S):
            while left & worker_pids(folder).keys():  # noqa: ASYNC110 - not this process's children
                await asyncio.sleep(0.02)
    for path in folder.glob("*.sock"):
        if path not in kept:
            path.unlink(missing_ok=True)
    return sorted(left)


def remove_if_empty(folder: Path) -> None:
    """Removes the folder when no socket is left in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()

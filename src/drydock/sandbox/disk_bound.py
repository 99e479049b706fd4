"""A bound on what is written to a directory of the machine's disk.

Files stay where they are written, so no file system of a fixed size can hold them without a copy. Instead the
directory is measured again and again while it grows. The bound can therefore be exceeded by what is written between two
looks; what is done then is the caller's to say. The look is also at the space left on the disk, so that many
directories together cannot fill it.
"""

import asyncio
import os
import time
from enum import Enum, auto
from pathlib import Path

_INTERVAL_S = 0.5
_SHARE_OF_TIME = 0.1
"""At most this part of the time is spent measuring."""

LEFT_MB = 1024
"""Space on the disk that is left alone."""


class Excess(Enum):
    """OWN: the directory holds more than it may. SPACE: the disk is as good as full, whoever filled it."""

    OWN = auto()
    SPACE = auto()


class DiskBound:
    """Measures `directory`, whose files may take `limit_mb` MiB."""

    def __init__(self, directory: Path, limit_mb: int) -> None:
        self._directory = directory
        self._limit = limit_mb << 20
        self._pause_s = _INTERVAL_S

    @property
    def pause_s(self) -> float:
        """Seconds until it is worth looking again."""
        return self._pause_s

    async def excess(self) -> Excess | None:
        """What is exceeded, None while all is well."""
        began = time.monotonic()
        used = await _disk_use(self._directory)
        self._pause_s = max(_INTERVAL_S, (time.monotonic() - began) / _SHARE_OF_TIME)
        if used > self._limit:
            return Excess.OWN
        space = os.statvfs(self._directory)
        if space.f_bavail * space.f_frsize < LEFT_MB << 20:
            return Excess.SPACE
        return None


async def _disk_use(directory: Path) -> int:
    """Bytes on disk below `directory`, which untrusted programs may be changing: no link in it is followed."""
    process = await asyncio.create_subprocess_exec(
        *("du", "--summarize", "--block-size=1", "--", str(directory)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    output, _ = await process.communicate()
    return int(output.split()[0]) if output else 0

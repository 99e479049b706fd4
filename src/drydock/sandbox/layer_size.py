"""A bound on what one RUN line writes to the cache's disk.

Layers stay where they are written, so no file system of a fixed size can hold them without a copy of every layer.
Instead the layer is measured again and again while it grows. It can therefore be exceeded by what is written between
two looks; then the step is stopped and its layer is thrown away.
"""

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from drydock.errors import TaskError

_INTERVAL_S = 0.5
_SHARE_OF_TIME = 0.1
"""At most this part of the time is spent measuring."""


async def within_size[T](step: Coroutine[Any, Any, T], directory: Path, limit_mb: int, where: str) -> T:
    """Carry out `step`; stop it when the files in `directory` take more than `limit_mb` MiB, then or at its end.

    Raises TaskError naming `where`.
    """
    task = asyncio.create_task(step)
    pause_s = _INTERVAL_S
    try:
        while True:
            await asyncio.wait({task}, timeout=pause_s)
            ended = task.done()
            began = time.monotonic()
            if await _disk_use(directory) > limit_mb << 20:
                raise TaskError(
                    f"{where}: RUN writes more than {limit_mb} MiB; the sandbox option max_layer_mb is the limit"
                )
            if ended:
                return task.result()
            pause_s = max(_INTERVAL_S, (time.monotonic() - began) / _SHARE_OF_TIME)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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

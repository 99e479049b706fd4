"""A bound on what one RUN line writes to the cache's disk: past it, the step is stopped and its layer thrown away."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from drydock.errors import SandboxError, TaskError
from drydock.sandbox.disk_bound import LEFT_MB, DiskBound, Excess


async def within_size[T](step: Coroutine[Any, Any, T], directory: Path, limit_mb: int, where: str) -> T:
    """Carry out `step`; stop it when the files in `directory` take more than `limit_mb` MiB, then or at its end.

    Raises TaskError naming `where`.
    """
    task = asyncio.create_task(step)
    bound = DiskBound(directory, limit_mb)
    try:
        while True:
            await asyncio.wait({task}, timeout=bound.pause_s)
            ended = task.done()
            excess = await bound.excess()
            if excess is Excess.OWN:
                raise TaskError(
                    f"{where}: RUN writes more than {limit_mb} MiB; the sandbox option max_layer_mb is the limit"
                )
            if excess is Excess.SPACE:
                raise SandboxError(
                    f"{where}: RUN was stopped because less than {LEFT_MB} MiB is left on the disk of {directory}; "
                    "`drydock sandbox prune` deletes old layers"
                )
            if ended:
                return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

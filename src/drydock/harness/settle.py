"""Waiting for a task that was told to stop, no matter how often the waiter itself is cancelled."""

import asyncio
from typing import Any


async def settle(task: asyncio.Future[Any], grace_s: float) -> bool:
    """Wait until `task` is done, at most `grace_s` seconds; return whether it is.

    Cancellations of the caller that arrive meanwhile are absorbed (the caller is already on its way out). The task's
    exception, if any, is marked as seen.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + grace_s
    while not task.done() and loop.time() < give_up_at:
        try:
            await asyncio.wait({task}, timeout=give_up_at - loop.time())
        except asyncio.CancelledError:
            continue
    if task.done() and not task.cancelled():
        task.exception()
    return task.done()

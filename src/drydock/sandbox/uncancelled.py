"""Steps that must not be left half done when a rollout is cancelled."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any


async def to_its_end[T](work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end even when the caller is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise

"""Steps that must not be left half done when a rollout is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_its_end[T](work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Await `work` to its end however often the caller is cancelled meanwhile; the cancellation is raised afterwards.

    Whatever `work` raised is then dropped: the caller is on its way out.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()
    raise cancelled

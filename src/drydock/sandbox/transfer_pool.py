"""Threads for file work that would block the event loop.

They are the sandbox's own: the loop's default pool may be full of agents' tools that wait for the very sandbox.
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from drydock.sandbox.uncancelled import to_its_end

_THREADS = 8


async def in_transfer_pool[T](action: Callable[..., T], *args: object) -> T:
    """Run `action(*args)` on one of the threads, to its end.

    A thread cannot be cancelled. If its caller went on, the sandbox's root descriptor could be closed and its number
    given to another sandbox while the thread still writes there.
    """
    work = asyncio.get_running_loop().run_in_executor(_pool(), functools.partial(action, *args))
    return await to_its_end(work)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sandbox-files")

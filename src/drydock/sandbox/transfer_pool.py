"""Threads for file work that would block the event loop.

They are the sandbox's own: the loop's default pool may be full of agents' tools that wait for the very sandbox.
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_THREADS = 8


async def in_transfer_pool[T](action: Callable[..., T], *args: object) -> T:
    """Run `action(*args)` on one of the threads."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), functools.partial(action, *args))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sandbox-files")

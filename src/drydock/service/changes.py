"""Who is told at once when something of a job changes: the event streams.

A follower has a bounded queue of its own. One that does not keep up is dropped; its stream ends, and it comes back
with its last event's id. Telling never waits, so nothing that happens to a job depends on who watches it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

QUEUED = 10_000
"""Changes that a follower may be behind."""


class Changes:
    """The followers of all jobs."""

    def __init__(self) -> None:
        self._followers: dict[str, set[asyncio.Queue[Any]]] = {}
        self._closed = False

    def tell(self, job_id: str, change: object) -> None:
        """Hands a change (a request's record, or a job's new status) to everyone who follows the job."""
        for queue in list(self._followers.get(job_id, ())):
            if queue.qsize() >= QUEUED:
                self._followers[job_id].discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(change)

    @contextlib.contextmanager
    def following(self, job_id: str) -> Iterator[asyncio.Queue[Any]]:
        """A queue of the job's changes from now on; None in it means that no more will come."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        followers = self._followers.setdefault(job_id, set())
        followers.add(queue)
        if self._closed:
            queue.put_nowait(None)
        try:
            yield queue
        finally:
            followers.discard(queue)
            if not followers and self._followers.get(job_id) is followers:
                del self._followers[job_id]

    def close(self) -> None:
        """Ends every stream (the service is stopping)."""
        self._closed = True
        for followers in self._followers.values():
            for queue in followers:
                queue.put_nowait(None)

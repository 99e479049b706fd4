"""Rollouts of the steps to come, while the trainer works on an earlier one.

The bound on staleness is a bound on how early a step's rollouts may begin: those of step s begin once step
s - 1 - `max_staleness` has been trained, so no turn of them is sampled by an older policy. What is under way keeps
running through weight syncs; its later turns come from newer policies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self


class RolloutsAhead[Rollouts]:
    """Runs `collect(step)` for steps `first` to `last`, at most `max_staleness` steps ahead of the one in training.

    An async context: leaving it cancels what is under way and returns when that has stopped. An error of a step is
    raised where the step is taken.
    """

    def __init__(
        self, collect: Callable[[int], Awaitable[Rollouts]], *, first: int, last: int, max_staleness: int
    ) -> None:
        self._collect = collect
        self._next = first
        self._last = last
        self._max_staleness = max_staleness
        self._running: dict[int, asyncio.Task[Rollouts]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()

    async def take(self, step: int) -> Rollouts:
        """The rollouts of `step`, all steps before it having been trained; begins those that may begin now."""
        while self._next <= min(step + self._max_staleness, self._last):
            self._running[self._next] = asyncio.create_task(self._run(self._next), name=f"rollouts of {self._next}")
            self._next += 1
        return await self._running.pop(step)

    async def _run(self, step: int) -> Rollouts:
        return await self._collect(step)

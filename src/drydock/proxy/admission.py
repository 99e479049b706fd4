"""Who may sample now: a limited number of calls at a time, in order of arrival, with rollouts taking turns.

Each rollout that waits has a queue of its calls. A place that becomes free goes to the oldest call of the rollout that
is first in line, and the rollout, if more of its calls wait, goes to the end of the line. So a rollout with many calls
at once (sub-agents) delays another by no more than one call. A call that gives up, or is cancelled, leaves no place
taken behind.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drydock.deadline import deadline


class Admission:
    """Gives out `limit` places. Used from one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._line: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a place."""
        return sum(map(len, self._line.values()))

    @asynccontextmanager
    async def place(self, rollout_id: str, deadline_s: float) -> AsyncIterator[None]:
        """Hold a place while the block runs; raises DeadlineExceeded when there was none in `deadline_s` seconds."""
        await self._enter(rollout_id, deadline_s)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, rollout_id: str, deadline_s: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.setdefault(rollout_id, deque()).append(turn)
        try:
            async with deadline(
                f"a place at the sampler for a call of rollout {rollout_id}",
                deadline_s,
                lambda: f"{self.waiting} calls wait; raise max_concurrent_calls if the sampler can take more",
            ):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                self._forget(rollout_id, turn)
            raise

    def _leave(self) -> None:
        """Hand the place on, or put it back."""
        while self._line:
            rollout_id, calls = self._line.popitem(last=False)
            turn = calls.popleft()
            if calls:
                self._line[rollout_id] = calls
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, rollout_id: str, turn: asyncio.Future[None]) -> None:
        calls = self._line.get(rollout_id)
        if calls is not None and turn in calls:
            calls.remove(turn)
            if not calls:
                del self._line[rollout_id]

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.errors import DeadlineExceeded
from drydock.proxy.admission import Admission


class Work:
    """Calls that hold a place until they are told to end; `order` is the order in which they got one."""

    def __init__(self, limit: int) -> None:
        self.admission = Admission(limit)
        self.order: list[str] = []
        self.busy = 0
        self.most = 0
        self._end = asyncio.Semaphore(0)

    def start(self, rollout_id: str, *, deadline_s: float = 10.0) -> asyncio.Task[None]:
        return asyncio.create_task(self._call(rollout_id, deadline_s))

    async def end(self, count: int = 1) -> None:
        for _ in range(count):
            self._end.release()
            await asyncio.sleep(0.001)

    async def _call(self, rollout_id: str, deadline_s: float) -> None:
        async with self.admission.place(rollout_id, deadline_s):
            self.order.append(rollout_id)
            self.busy += 1
            self.most = max(self.most, self.busy)
            try:
                await self._end.acquire()
            finally:
                self.busy -= 1


async def test_rollouts_take_turns_in_order_of_arrival() -> None:
    work = Work(1)
    tasks = []
    for rollout_id in ("a", "a", "a", "a", "b", "c", "b"):
        tasks.append(work.start(rollout_id))
        await asyncio.sleep(0)
    assert (work.order, work.admission.waiting) == (["a"], 6)
    await work.end(7)
    await asyncio.gather(*tasks)
    assert work.order == ["a", "a", "b", "c", "a", "b", "a"]
    assert work.most == 1


async def test_a_call_that_waits_too_long_says_for_what_and_leaves_the_line() -> None:
    work = Work(1)
    first = work.start("a")
    await asyncio.sleep(0)
    with pytest.raises(DeadlineExceeded, match="a place at the sampler for a call of rollout b") as caught:
        await work.start("b", deadline_s=0.02)
    assert "max_concurrent_calls" in str(caught.value)
    assert work.admission.waiting == 0
    await work.end()
    await first
    await work.end()
    await work.start("c")


async def test_a_call_that_is_cancelled_when_it_gets_its_place_gives_it_on() -> None:
    work = Work(1)
    first, second, third = work.start("a"), work.start("b"), work.start("c")
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    second.cancel()  # its place was given to it in this very pass of the loop
    await work.end()
    await third
    assert work.order == ["a", "c"]


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(1, 3),
    steps=st.lists(st.tuples(st.sampled_from(["start", "end", "cancel"]), st.integers(0, 5)), max_size=40),
)
def test_no_place_is_lost_or_made_up(limit: int, steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        work = Work(limit)
        tasks: list[asyncio.Task[None]] = []
        for step, number in steps:
            if step == "start":
                tasks.append(work.start(f"rollout {number % 3}"))
            elif step == "end":
                await work.end()
            elif tasks:
                tasks[number % len(tasks)].cancel()
            if number % 2:
                await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert work.most <= limit
        assert work.admission.waiting == 0
        fresh = [work.start(str(number)) for number in range(limit)]
        await asyncio.sleep(0.001)
        assert work.busy + sum(task.done() for task in fresh) == limit
        await work.end(limit)
        await asyncio.gather(*fresh)

    asyncio.run(run())

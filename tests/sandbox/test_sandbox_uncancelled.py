"""Work that goes to its end however often its caller is cancelled."""

import asyncio
import time

import pytest

from drydock.sandbox.transfer_pool import in_transfer_pool
from drydock.sandbox.uncancelled import to_its_end


async def test_work_ends_although_the_caller_is_cancelled_twice():
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        await asyncio.sleep(0.1)
        steps.append("ended")

    caller = asyncio.create_task(to_its_end(work()))
    for _ in range(2):
        await asyncio.sleep(0.02)
        caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert steps == ["begun", "ended"]


async def test_result_and_error_of_uncancelled_work_reach_the_caller():
    async def work(answer: int) -> int:
        if answer < 0:
            raise ValueError("negative")
        return answer

    assert await to_its_end(work(3)) == 3
    with pytest.raises(ValueError, match="negative"):
        await to_its_end(work(-1))


async def test_a_cancelled_caller_waits_for_its_thread():
    """Else the caller could close the descriptor that the thread still writes through."""
    done: list[str] = []

    def slow() -> None:
        time.sleep(0.1)
        done.append("written")

    caller = asyncio.create_task(in_transfer_pool(slow))
    await asyncio.sleep(0.02)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["written"]

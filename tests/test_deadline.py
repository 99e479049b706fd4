"""Waits with a name and a limit."""

import asyncio

import pytest

from drydock.deadline import deadline
from drydock.errors import DeadlineExceeded


async def test_the_error_names_the_wait_and_the_hint_of_that_moment():
    hints = ["too early"]

    async def wait() -> None:
        async with deadline("the moon", 0.01, lambda: hints[-1]):
            hints.append("it is day")
            await asyncio.sleep(5)

    with pytest.raises(DeadlineExceeded, match=r"gave up waiting for the moon after 0\.01 s: it is day"):
        await wait()


async def test_a_timeout_of_another_block_passes_through():
    async def wait() -> None:
        async with deadline("the outer wait", 5), asyncio.timeout(0.01):
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError) as caught:
        await wait()
    assert not isinstance(caught.value, DeadlineExceeded)

"""How early the rollouts of a step begin, and that none is left behind."""

import asyncio
import gc

import pytest

from drydock.training.ahead import RolloutsAhead


class Collector:
    """Begins are noted as (step, steps trained so far); a step's rollouts are over when `over` says so."""

    def __init__(self) -> None:
        self.trained = 0
        self.begun: list[tuple[int, int]] = []
        self.cancelled: list[int] = []
        self.over: dict[int, asyncio.Event] = {}
        self.failing: set[int] = set()

    async def __call__(self, step: int) -> int:
        self.begun.append((step, self.trained))
        try:
            await self.over.setdefault(step, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(step)
            raise
        if step in self.failing:
            raise RuntimeError(f"step {step} broke")
        return step

    def end(self, *steps: int) -> None:
        for step in steps:
            self.over.setdefault(step, asyncio.Event()).set()


@pytest.mark.parametrize("staleness", [0, 1, 3])
async def test_no_rollout_begins_earlier_than_its_staleness_allows(staleness: int) -> None:
    collect = Collector()
    collect.end(*range(1, 7))
    async with RolloutsAhead(collect, first=1, last=6, max_staleness=staleness) as ahead:
        for step in range(1, 7):
            assert await ahead.take(step) == step
            await asyncio.sleep(0)
            collect.trained = step
    assert [step for step, _ in collect.begun] == [1, 2, 3, 4, 5, 6]
    assert [step - 1 - trained for step, trained in collect.begun] == [min(step - 1, staleness) for step in range(1, 7)]


async def test_the_first_step_of_a_run_that_goes_on_need_not_be_1() -> None:
    collect = Collector()
    collect.end(4, 5)
    async with RolloutsAhead(collect, first=4, last=5, max_staleness=2) as ahead:
        assert [await ahead.take(4), await ahead.take(5)] == [4, 5]


async def test_leaving_stops_everything_under_way() -> None:
    collect = Collector()
    collect.end(1)
    async with RolloutsAhead(collect, first=1, last=9, max_staleness=2) as ahead:
        await ahead.take(1)
    assert collect.cancelled == [2, 3]


async def test_an_error_of_a_later_step_waits_for_its_turn() -> None:
    collect = Collector()
    collect.failing.add(2)
    collect.end(1, 2)
    async with RolloutsAhead(collect, first=1, last=3, max_staleness=2) as ahead:
        assert await ahead.take(1) == 1
        with pytest.raises(RuntimeError, match="step 2 broke"):
            await ahead.take(2)
    assert collect.cancelled == [3]


async def test_an_error_that_is_never_taken_is_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    collect = Collector()
    collect.failing.add(2)
    collect.end(1, 2)
    async with RolloutsAhead(collect, first=1, last=3, max_staleness=2) as ahead:
        await ahead.take(1)
        await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text

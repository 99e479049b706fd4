import asyncio
import random

import pytest

from drydock.service.gpus import cuda_visible, gpu_type
from drydock.service.pool import Pool, PoolCounts
from drydock.service.problems import Refusal


async def settled() -> None:
    """Lets every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_pool_without_room_for_a_request_says_so_by_field_and_value():
    pool = Pool({"H200": 8})
    assert pool.check(None, 8) == "H200"
    assert pool.check("h200", 1) == "H200"
    with pytest.raises(Refusal, match=r"hardware: 'B200' is not in this pool \(it has H200: 8\)") as caught:
        pool.check("B200", 1)
    assert caught.value.status == 422
    with pytest.raises(Refusal, match="n_gpus: 9 asked for in all, but this pool has 8 of H200") as caught:
        pool.check(None, 9)
    assert caught.value.status == 422
    with pytest.raises(Refusal, match="n_gpus: 0"):
        pool.check(None, 0)


def test_an_empty_or_negative_capacity_is_refused():
    with pytest.raises(ValueError, match="pool"):
        Pool({})
    with pytest.raises(ValueError, match="H200"):
        Pool({"H200": -1})


async def test_devices_are_given_once_and_come_back():
    pool = Pool({"H200": 4})
    first = await pool.acquire("a", "H200", 3)
    second = await pool.acquire("b", "H200", 1)
    assert sorted(first + second) == [0, 1, 2, 3]
    assert pool.counts("H200") == PoolCounts(total=4, in_use=4, pending=0)
    assert pool.counts("H200").available == 0
    pool.release("a")
    pool.release("a")
    assert pool.counts("H200") == PoolCounts(total=4, in_use=1, pending=0)
    assert await pool.acquire("c", "H200", 3) == first
    assert pool.counts("B200") == PoolCounts(total=0, in_use=0, pending=0)


async def test_cpu_slots_have_no_devices():
    pool = Pool({"CPU": 2})
    assert await pool.acquire("a", "CPU", 2) == []
    assert pool.counts("CPU") == PoolCounts(total=2, in_use=2, pending=0)


async def test_who_asked_first_is_placed_first_even_when_a_later_one_would_fit():
    pool = Pool({"H200": 4})
    await pool.acquire("running", "H200", 3)
    order: list[str] = []

    async def take(job_id: str, slots: int) -> None:
        await pool.acquire(job_id, "H200", slots)
        order.append(job_id)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(take("big", 4))
        await settled()
        tasks.create_task(take("small", 1))
        await settled()
        assert order == []
        assert (pool.position("running"), pool.position("big"), pool.position("small")) == (None, 1, 2)
        assert pool.counts("H200") == PoolCounts(total=4, in_use=3, pending=5)
        pool.release("running")
        await settled()
        assert order == ["big"]
        assert pool.position("small") == 1
        pool.release("big")
    assert order == ["big", "small"]


async def test_types_do_not_wait_for_each_other():
    pool = Pool({"H200": 1, "B200": 1})
    await pool.acquire("a", "H200", 1)
    waiting = asyncio.create_task(pool.acquire("b", "H200", 1))
    await settled()
    assert await asyncio.wait_for(pool.acquire("c", "B200", 1), 5) == [1]
    assert not waiting.done()
    pool.release("a")
    assert await asyncio.wait_for(waiting, 5) == [0]


async def test_a_cancelled_wait_leaves_the_queue_and_lets_the_next_one_in():
    pool = Pool({"CPU": 4})
    await pool.acquire("a", "CPU", 2)
    big = asyncio.create_task(pool.acquire("big", "CPU", 4))
    await settled()
    small = asyncio.create_task(pool.acquire("small", "CPU", 2))
    await settled()
    assert not small.done()
    big.cancel()
    assert await asyncio.wait_for(small, 5) == []
    assert pool.position("big") is None
    assert pool.counts("CPU") == PoolCounts(total=4, in_use=4, pending=0)


async def test_a_wait_cancelled_in_the_moment_it_is_granted_gives_its_room_back():
    pool = Pool({"CPU": 1})
    await pool.acquire("a", "CPU", 1)
    waiting = asyncio.create_task(pool.acquire("b", "CPU", 1))
    await settled()
    pool.release("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert pool.counts("CPU") == PoolCounts(total=1, in_use=0, pending=0)


async def test_releasing_a_waiting_job_ends_its_wait():
    pool = Pool({"CPU": 1})
    await pool.acquire("a", "CPU", 1)
    waiting = asyncio.create_task(pool.acquire("b", "CPU", 1))
    await settled()
    pool.release("b")
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    assert pool.counts("CPU") == PoolCounts(total=1, in_use=1, pending=0)


async def test_an_adopted_job_keeps_its_devices_and_counts_even_beyond_the_total():
    pool = Pool({"H200": 2})
    pool.adopt("a", "H200", 1, [1])
    assert await pool.acquire("b", "H200", 1) == [0]
    pool.adopt("c", "H200", 2, [2, 3])
    pool.adopt("gone type", "B200", 1, [0])
    assert pool.counts("H200") == PoolCounts(total=2, in_use=4, pending=0)
    assert pool.counts("H200").available == 0
    assert pool.counts("B200") == PoolCounts(total=0, in_use=1, pending=0)
    for job_id in ("a", "b", "c", "gone type"):
        pool.release(job_id)
    assert sorted(await pool.acquire("d", "H200", 2)) == [0, 1]


async def test_waiting_for_more_than_the_pool_has_is_refused_instead_of_forever():
    with pytest.raises(Refusal, match="n_gpus: 3"):
        await Pool({"CPU": 2}).acquire("a", "CPU", 3)


def test_the_machine_gives_a_pool_of_its_gpus_or_of_cpu_slots():
    assert Pool.of_machine(None, gpus=["H200", "H200"], cores=64).counts("H200").total == 2
    cpu = Pool.of_machine(None, gpus=[], cores=2)
    assert (cpu.default_hardware, cpu.counts("CPU").total) == ("CPU", 8)
    assert Pool.of_machine(None, gpus=[], cores=16).counts("CPU").total == 32


async def test_a_configured_pool_takes_devices_of_its_own_type():
    mixed = ["H200", "B200", "H200"]
    pool = Pool.of_machine({"B200": 1, "H200": 2}, gpus=mixed, cores=2)
    assert pool.default_hardware == "B200"
    assert await pool.acquire("a", "B200", 1) == [1]
    assert sorted(await pool.acquire("b", "H200", 2)) == [0, 2]
    assert await Pool.of_machine({"H200": 2}, gpus=[], cores=2).acquire("c", "H200", 2) == [0, 1]


def test_devices_are_named_for_a_worker_among_those_that_the_service_sees():
    assert cuda_visible([0, 2], None) == "0,2"
    assert cuda_visible([0, 2], "4,5,GPU-1234") == "4,GPU-1234"
    assert cuda_visible([], "4") == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "GPU"),
        ("", "GPU"),
    ],
)
def test_a_gpu_is_known_by_its_name(name: str, expected: str):
    assert gpu_type(name) == expected


@pytest.mark.parametrize("seed", range(20))
async def test_room_is_never_given_twice_nor_lost(seed: int):
    """Random arrivals, releases and cancellations; 4 devices."""
    rng = random.Random(seed)
    pool = Pool({"H200": 4})
    waits: dict[str, asyncio.Task[list[int]]] = {}
    for number in range(60):
        action = rng.choice(["ask", "ask", "release", "cancel"])
        if action == "ask":
            name = f"j{number}"
            waits[name] = asyncio.create_task(pool.acquire(name, "H200", rng.randint(1, 4)))
        elif waits:
            name = rng.choice(list(waits))
            task = waits.pop(name)
            if action == "cancel" or not task.done():
                task.cancel()
            pool.release(name)
            await asyncio.gather(task, return_exceptions=True)
        if rng.random() < 0.6:
            await settled()
            placed = [task.done() for task in waits.values()]
            assert placed == sorted(placed, reverse=True), "placed before one that asked earlier"
        held = [device for task in waits.values() if task.done() for device in task.result()]
        assert len(held) == len(set(held)) <= 4
        assert pool.counts("H200").in_use <= 4
    for name, task in waits.items():
        task.cancel()
        pool.release(name)
        await asyncio.gather(task, return_exceptions=True)
    assert pool.counts("H200") == PoolCounts(total=4, in_use=0, pending=0)
    assert await pool.acquire("last", "H200", 4) == [0, 1, 2, 3]

"""What is counted, on both databases: time held, tokens with their requests, storage; and the sums over them."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from drydock.service import schema as tables
from drydock.service.meters import Entry, Meter, Metered, add, by_day
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.result_files import ResultFiles
from drydock.service.store import Store
from drydock.service.usage import Placed, Usage
from drydock.service.usage_report import By, Scope, job_report, report

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest_asyncio.fixture
async def store(database: Path | str) -> AsyncIterator[Store]:
    opened = await Store.open(database)
    yield opened
    await opened.close()


async def put_job(store: Store, job_id: str, owner: str, **fields: object) -> None:
    row = {"job_id": job_id, "status": "running", "created_at": NOON, "updated_at": NOON, "body": {}, "owner": owner}
    await store.put(tables.jobs, [{**row, **fields}])


async def quantities(store: Store) -> dict[tuple[str, str], float]:
    rows = await store.rows(tables.usage)
    return {(row["day"], f"{row['sub_job_id'] or row['job_id']} {row['meter']}"): row["quantity"] for row in rows}


def test_a_span_is_split_at_midnight_utc():
    begin = datetime(2026, 1, 31, 23, tzinfo=UTC).timestamp()
    assert list(by_day(begin, begin + 26 * HOUR_S)) == [
        ("2026-01-31", HOUR_S),
        ("2026-02-01", 24 * HOUR_S),
        ("2026-02-02", HOUR_S),
    ]
    assert list(by_day(begin, begin)) == list(by_day(begin, begin - 1)) == []


async def test_time_held_is_counted_from_placement_to_the_end_whenever_it_is_looked_at(store: Store):
    clock, placed = Clock(NOON + 5), [("j", "j:training:0", "H200", 4), ("j", "j:sampling:0", "CPU", 1)]
    await put_job(store, "j", "anna", started_at=NOON)
    usage = Usage(store, lambda: list(placed), tick_s=3600, clock=clock)
    await usage.tick()
    clock.now += 10
    await usage.tick()
    await usage.tick()
    assert await quantities(store) == {
        ("2026-01-31", "j:training:0 gpu_seconds"): 60.0,
        ("2026-01-31", "j:sampling:0 cpu_slot_seconds"): 15.0,
    }
    placed.clear()
    clock.now += 10
    await usage.tick()
    assert (await quantities(store))["2026-01-31", "j:training:0 gpu_seconds"] == 60.0
    await put_job(store, "j", "anna", started_at=NOON, ended_at=NOON + 18)
    clock.now += 10
    await usage.tick()
    await usage.close()
    assert await quantities(store) == {
        ("2026-01-31", "j:training:0 gpu_seconds"): 72.0,
        ("2026-01-31", "j:sampling:0 cpu_slot_seconds"): 18.0,
    }


async def test_a_restarted_service_counts_the_time_in_between_once(store: Store):
    clock = Clock(NOON + 100)
    placed: list[Placed] = [("j", "j:training:0", "H200", 2)]
    await put_job(store, "j", "anna", started_at=NOON)
    for _ in range(3):
        usage = Usage(store, lambda: placed, tick_s=3600, clock=clock)
        await usage.tick()
        usage._ticker.cancel()
        clock.now += 50
    assert await quantities(store) == {("2026-01-31", "j:training:0 gpu_seconds"): 2 * 200.0}


async def test_a_clock_set_back_takes_nothing_away(store: Store):
    clock = Clock(NOON + 100)
    await put_job(store, "j", "anna", started_at=NOON)
    usage = Usage(store, lambda: [("j", "s", "CPU", 1)], tick_s=3600, clock=clock)
    await usage.tick(storage=True)
    clock.now = NOON - 1000
    await usage.close()
    assert await quantities(store) == {("2026-01-31", "s cpu_slot_seconds"): 100.0}


async def test_it_counts_by_itself(store: Store):
    now = time.time()
    await put_job(store, "j", "anna", started_at=now)
    usage = Usage(store, lambda: [("j", "s", "CPU", 1)], tick_s=0.02)
    for _ in range(500):
        if (counted := sum((await quantities(store)).values())) > 0.1:
            break
        await asyncio.sleep(0.02)
    await usage.close()
    assert 0.1 < counted <= time.time() - now


async def test_checkpoints_on_disk_are_counted_by_size_and_time(store: Store):
    clock = Clock(NOON)
    usage = Usage(store, list, tick_s=3600, clock=clock)
    row = {"job_id": "j", "checkpoint_type": "resumable", "created_at": NOON, "path": "/x"}
    sizes = {"a": 1 << 30, "b": 3 << 29, "of unknown size": None}
    await store.put(tables.checkpoints, [{**row, "checkpoint_id": key, "size_bytes": n} for key, n in sizes.items()])
    clock.now += HOUR_S / 2
    await usage.tick(storage=True)
    clock.now += HOUR_S / 2
    await usage.close()
    assert await quantities(store) == {("2026-01-31", "j storage_gib_hours"): pytest.approx(2.5)}


async def test_tokens_are_counted_once_with_the_finished_request(store: Store, tmp_path: Path):
    table = RequestTable(store, ResultFiles(tmp_path / "results", 10_000))
    table.open_job("j")

    async def work(_: RequestRecord) -> Outcome:
        metered = (Metered(Meter.PROMPT_TOKENS, 7, "s"), Metered(Meter.SAMPLED_TOKENS, 5, "s"))
        return Outcome({"results": []}, frame=b"frame", metered=metered)

    async def failing(_: RequestRecord) -> Outcome:
        raise ValueError

    records = [table.start("j", "generate", work) for _ in range(3)]
    await table.hold(table.start("j", "generate", failing), 5)
    for record in records:
        await table.hold(record, 5)
        await table.written(record)
        await table.written(record)
    await table.close()
    counted: dict[str, float] = {}
    for (_, name), quantity in (await quantities(store)).items():
        counted[name] = counted.get(name, 0.0) + quantity
    assert counted == {"s prompt_tokens": 21.0, "s sampled_tokens": 15.0}


async def test_usage_is_summed_by_job_user_and_day(store: Store):
    await put_job(store, "a", "anna", created_at=2.0, name="first try")
    await put_job(store, "b", "bert", created_at=1.0)
    await put_job(store, "c", "anna", created_at=3.0)
    entries = [
        Entry("2026-01-30", "a", Metered(Meter.GPU_SECONDS, 10, "a:training:0")),
        Entry("2026-01-31", "a", Metered(Meter.GPU_SECONDS, 20, "a:training:0")),
        Entry("2026-01-31", "a", Metered(Meter.SAMPLED_TOKENS, 500, "a:sampling:0")),
        Entry("2026-01-31", "a", Metered(Meter.STORAGE_GIB_HOURS, 0.5)),
        Entry("2026-01-31", "b", Metered(Meter.GPU_SECONDS, 1, "b:training:0")),
        Entry("2026-02-01", "c", Metered(Meter.GPU_SECONDS, 3, "c:training:0")),
    ]
    await store.run(lambda connection: add(connection, entries))
    prices = {Meter.GPU_SECONDS: 0.5, Meter.SAMPLED_TOKENS: 0.01}

    async def lines(by: By, scope: Scope) -> list[tuple[str, float, float]]:
        found = await store.run(lambda connection: report(connection, by, scope, prices))
        key = {By.JOB: "job_id", By.USER: "user", By.DAY: "day"}[by]
        return [(line[key], line["meters"]["gpu_seconds"], line["cost"]) for line in found["usage"]]

    assert await lines(By.JOB, Scope()) == [("b", 1.0, 0.5), ("a", 30.0, 20.0), ("c", 3.0, 1.5)]
    assert await lines(By.USER, Scope()) == [("anna", 33.0, 21.5), ("bert", 1.0, 0.5)]
    assert await lines(By.DAY, Scope(user="anna")) == [
        ("2026-01-30", 10.0, 5.0),
        ("2026-01-31", 20.0, 15.0),
        ("2026-02-01", 3.0, 1.5),
    ]
    assert await lines(By.JOB, Scope(since="2026-01-31", until="2026-01-31")) == [("b", 1.0, 0.5), ("a", 20.0, 15.0)]
    whole = await store.run(lambda connection: report(connection, By.JOB, Scope(job_id="a"), {}))
    assert [(line["user"], line["name"]) for line in whole["usage"]] == [("anna", "first try")]
    assert whole["total"]["meters"]["sampled_tokens"] == 500.0
    assert "cost" not in whole["total"]
    one = await store.run(lambda connection: job_report(connection, "a", prices))
    assert (one["job_id"], one["user"], one["cost"]) == ("a", "anna", 20.0)
    assert [part["sub_job_id"] for part in one["sub_jobs"]] == [None, "a:sampling:0", "a:training:0"]
    assert [(part["day"], part["meters"]["gpu_seconds"]) for part in one["days"]] == [
        ("2026-01-30", 10.0),
        ("2026-01-31", 20.0),
    ]

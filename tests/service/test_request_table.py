import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from drydock.errors import EngineError, UserError, WorkerLost
from drydock.service import request_table as module
from drydock.service import schema as tables
from drydock.service.problems import Refusal
from drydock.service.request_record import Outcome, RequestRecord
from drydock.service.request_table import RequestTable
from drydock.service.request_view import request_state
from drydock.service.result_files import ResultFiles
from drydock.service.store import Store
from drydock.service.worker_group import WorkerStopped
from drydock.wire.blob import Bytes
from drydock.wire.frame import encode_frame
from drydock.wire.status import RequestStatus


@pytest_asyncio.fixture
async def store(database: Path | str) -> AsyncIterator[Store]:
    opened = await Store.open(database)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def table(store: Store, tmp_path: Path) -> AsyncIterator[RequestTable]:
    made = RequestTable(store, ResultFiles(tmp_path / "results", 10_000))
    made.open_job("j")
    yield made
    await made.close()


async def at_once(record: RequestRecord) -> Outcome:
    return Outcome({"kind": record.kind})


async def test_a_finished_request_is_in_the_store_soon_and_found_there(table: RequestTable, store: Store):
    record = table.start("j", "step", at_once, idempotency_key="k", body_sha256="s")
    await table.hold(record, 5)
    assert record.status is RequestStatus.COMPLETED
    await asyncio.sleep(4 * module.FLUSH_S)
    row = await store.one(tables.requests, request_id=record.request_id)
    assert row is not None
    assert (row["status"], row["result"]) == ("completed", {"kind": "step"})
    table.close_job("j")
    again = RequestRecord.from_row(row)
    assert (again.outcome, again.idempotency_key) == (record.outcome, "k")
    found = await table.find("j", "k", "s")
    assert found is not None
    assert found.request_id == record.request_id
    with pytest.raises(Refusal, match="another body"):
        await table.find("j", "k", "other")
    assert await table.find("j", "unused", "s") is None
    assert await table.get("other job", record.request_id) is None


async def test_written_does_not_wait_for_the_next_flush(
    table: RequestTable, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FLUSH_S", 60)
    go = asyncio.Event()

    async def work(_: RequestRecord) -> Outcome:
        await go.wait()
        return Outcome({})

    record = table.start("j", "step", work)
    await asyncio.wait_for(table.written(record), 5)
    row = await store.one(tables.requests, request_id=record.request_id)
    assert row is not None
    assert row["status"] == "running"
    go.set()


@pytest.mark.parametrize(
    ("error", "status", "error_type", "blame"),
    [
        (EngineError("no"), "failed", "EngineError", "model"),
        (UserError("no"), "failed", "UserError", "user"),
        (WorkerLost("no"), "failed", "WorkerLost", "infrastructure"),
        (WorkerStopped("no"), "cancelled", "Cancelled", None),
        (KeyError("no"), "failed", "KeyError", "infrastructure"),
    ],
)
async def test_what_the_work_raises_is_the_requests_end(
    table: RequestTable, error: Exception, status: str, error_type: str, blame: str | None
):
    async def work(_: RequestRecord) -> Outcome:
        raise error

    record = table.start("j", "step", work)
    await table.hold(record, 5)
    state = await request_state(table, record, None, None)
    assert (state["status"], state["error_type"], state["blame"]) == (status, error_type, blame)
    assert "no" in state["error"]
    assert "result" not in state


async def test_holds_end_by_time_by_the_request_or_when_the_service_stops(table: RequestTable):
    go = asyncio.Event()

    async def work(_: RequestRecord) -> Outcome:
        await go.wait()
        return Outcome({})

    record = table.start("j", "step", work)
    started = time.monotonic()
    await table.hold(record, 0.05)
    assert 0.04 < time.monotonic() - started < 2
    holds = [asyncio.create_task(table.hold(record, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    table.release_holds()
    await asyncio.wait_for(asyncio.gather(*holds), 2)
    assert record.status is RequestStatus.RUNNING
    await asyncio.wait_for(table.hold(record, 60), 2)
    go.set()


async def test_old_requests_leave_memory_and_their_results_stay_readable(
    table: RequestTable, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "KEPT_IN_MEMORY", 3)
    records = [table.start("j", "step", at_once) for _ in range(20)]
    for record in records:
        await table.hold(record, 5)
        await table.written(record)
    assert len(table._records) <= 4
    found = await table.get("j", records[0].request_id)
    assert found is not None
    assert found is not records[0]
    assert found.outcome == Outcome({"kind": "step"})


async def test_results_with_tensors_are_files_and_the_oldest_give_way(table: RequestTable):
    async def work(_: RequestRecord) -> Outcome:
        return Outcome(frame=encode_frame({"text": "x" * 3000}))

    records = []
    for _ in range(5):
        records.append(table.start("j", "forward-backward", work))
        await table.hold(records[-1], 5)
        await table.written(records[-1])
    assert (await request_state(table, records[-1], None, None))["result"] == {"text": "x" * 3000}
    with pytest.raises(Refusal, match="dropped to make room"):
        await request_state(table, records[0], None, None)


async def test_a_key_that_fell_out_of_memory_is_found_in_the_store(
    table: RequestTable, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "KEYS_IN_MEMORY", 2)
    records = [table.start("j", "step", at_once, idempotency_key=f"k{n}", body_sha256="s") for n in range(4)]
    for record in records:
        await table.hold(record, 5)
        await table.written(record)
    for number, record in enumerate(records):
        found = await table.find("j", f"k{number}", "s")
        assert found is not None
        assert found.request_id == record.request_id
    assert await table.find("j", "unused", "s") is None


async def test_what_must_not_run_twice_is_written_before_it_is_begun_and_begins_in_order(
    table: RequestTable, store: Store
):
    begun: list[str] = []

    async def work(record: RequestRecord) -> Outcome:
        record.arguments = {"of": record.request_id}
        assert record.before_asking is not None
        await record.before_asking()
        begun.append(record.request_id)
        row = await store.one(tables.requests, request_id=record.request_id)
        assert row is not None
        assert row["arguments"] == {"of": record.request_id}
        return Outcome({})

    made: list[RequestRecord] = []
    for round_ in range(6):
        made += [table.start("j", kind, work) for kind in ("forward-backward", "step", "save", "weight-sync")]
        await asyncio.sleep(0.01 * round_)
    for record in made:
        await table.hold(record, 5)
        assert record.status is RequestStatus.COMPLETED, record.error
    assert begun == [record.request_id for record in made]


async def test_a_worker_may_forget_only_what_is_in_the_store(table: RequestTable, store: Store):
    found: list[str] = []

    async def work(record: RequestRecord) -> Outcome:
        record.settled.append(lambda: found.append(record.status.value))
        return Outcome({"x": 1})

    record = table.start("j", "step", work)
    await table.hold(record, 5)
    assert found == []
    await table.written(record)
    assert found == ["completed"]


async def test_keys_of_a_job_that_an_earlier_process_opened_are_found(tmp_path: Path, store: Store):
    earlier = RequestTable(store, ResultFiles(tmp_path / "earlier", 10_000))
    earlier.open_job("j")
    record = earlier.start("j", "step", at_once, idempotency_key="k", body_sha256="s")
    await earlier.hold(record, 5)
    await earlier.close()
    later = RequestTable(store, ResultFiles(tmp_path / "later", 10_000))
    await later.reopen_job("j")
    found = await later.find("j", "k", "s")
    assert found is not None
    assert found.request_id == record.request_id
    await later.close()


async def test_a_request_that_ends_while_others_are_filed_is_not_written_without_its_own_file(
    store: Store, tmp_path: Path
):
    class SlowFiles(ResultFiles):
        def write(self, request_id: str, frame: Bytes) -> str:
            go.set()
            time.sleep(0.1)
            return super().write(request_id, frame)

    go = threading.Event()
    table = RequestTable(store, SlowFiles(tmp_path / "slow", 10_000))

    async def first(_: RequestRecord) -> Outcome:
        return Outcome(frame=b"first")

    async def during_the_filing(record: RequestRecord) -> Outcome:
        record.settled.append(lambda: settled.append(record.result_file))
        await asyncio.to_thread(go.wait, 5)
        return Outcome(frame=b"second")

    settled: list[str | None] = []
    records = [table.start("j", "forward", work) for work in (first, during_the_filing)]
    for record in records:
        await table.hold(record, 5)
        await table.written(record)
    assert settled == [f"{records[1].request_id}.dssst1"]
    await table.close()


async def test_requests_that_a_restart_left_of_an_ended_job_do_not_hide_its_older_keys(
    table: RequestTable, store: Store
):
    old = table.start("j", "step", at_once, idempotency_key="old", body_sha256="s")
    await table.hold(old, 5)
    await table.written(old)
    table.close_job("j")
    table.resume(RequestRecord("left", "j", "step", 1.0, 1.0, idempotency_key="k", body_sha256="s"), at_once)
    found = await table.find("j", "old", "s")
    assert found is not None
    assert found.request_id == old.request_id

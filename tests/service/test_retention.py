import asyncio
import time
from pathlib import Path

from drydock.service import retention as module
from drydock.service import schema as tables
from drydock.service.result_files import ResultFiles
from drydock.service.retention import DAY_S, forget_requests, forgetting
from drydock.service.store import Store

REQUEST = {"kind": "step", "status": "completed", "created_at": 1.0, "wants_tensors": 0}


async def fill(store: Store, results: ResultFiles) -> None:
    job = {"created_at": 1.0, "updated_at": 1.0, "body": {}}
    await store.put(
        tables.jobs, [{**job, "job_id": "over", "status": "failed"}, {**job, "job_id": "live", "status": "running"}]
    )
    now = time.time()
    rows = [
        {**REQUEST, "request_id": f"{job_id} {age}", "job_id": job_id, "updated_at": now - days * DAY_S}
        for job_id in ("over", "live")
        for age, days in (("old", 40), ("new", 20))
    ]
    files = {row["request_id"]: results.write(row["request_id"], b"frame") for row in rows}
    await store.put(tables.requests, [{**row, "result_file": files[row["request_id"]]} for row in rows])


async def test_old_requests_of_ended_jobs_go_with_their_files(database: Path | str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, "BATCH_ROWS", 1)
    store, results = await Store.open(database), ResultFiles(tmp_path / "results", 1000)
    await fill(store, results)
    assert await forget_requests(store, results, time.time() - 30 * DAY_S) == 1
    kept = {row["request_id"] for row in await store.rows(tables.requests)}
    assert kept == {"over new", "live old", "live new"}
    assert {path.name for path in (tmp_path / "results").iterdir()} == {f"{name}.dssst1" for name in kept}
    assert await forget_requests(store, results, time.time()) == 1
    assert {row["job_id"] for row in await store.rows(tables.requests)} == {"live"}
    assert len(await store.rows(tables.jobs)) == 2
    await store.close()


async def test_they_are_forgotten_at_the_start_and_again_and_again(tmp_path: Path):
    store, results = await Store.open(tmp_path / "db.sqlite"), ResultFiles(tmp_path / "results", 1000)
    async with forgetting(store, results, 30, every_s=0.05):
        for _ in range(2):
            await fill(store, results)
            for _ in range(500):
                if (left := len(await store.rows(tables.requests))) == 3:
                    break
                await asyncio.sleep(0.02)
            assert left == 3
    await store.close()

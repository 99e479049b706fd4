"""The database: migrations, both kinds of server, refusals."""

import asyncio
import math
import sqlite3
from pathlib import Path

import pytest
from builders.postgres import Postgres
from sqlalchemy import Connection, inspect, make_url
from sqlalchemy.exc import IntegrityError

from drydock.errors import UserError
from drydock.service import schema
from drydock.service import store as module
from drydock.service.store import Store, database_url

JOB = {"job_id": "j", "status": "running", "created_at": 1.0, "updated_at": 1.0, "body": {"a": [1, None]}}

REQUEST = {
    **{"request_id": "r", "job_id": "j", "kind": "step", "status": "completed"},
    **{"created_at": 1.0, "updated_at": 1.0, "wants_tensors": 0, "arguments": None},
}


def columns(connection: Connection) -> dict[str, set[str]]:
    inspector = inspect(connection)
    return {table: {c["name"] for c in inspector.get_columns(table)} for table in inspector.get_table_names()}


async def test_migrations_make_exactly_the_tables_that_the_code_uses(database: Path | str):
    store = await Store.open(database)
    made = await store.run(columns)
    await store.close()
    made.pop("alembic_version")
    assert made == {table.name: {c.name for c in table.columns} for table in schema.metadata.sorted_tables}


async def test_a_database_of_the_first_version_is_brought_up_to_date_with_its_rows(tmp_path: Path):
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as old:
        old.executescript("""
            CREATE TABLE meta (key VARCHAR PRIMARY KEY, value INTEGER NOT NULL);
            INSERT INTO meta VALUES ('schema_version', 1);
            CREATE TABLE jobs (job_id VARCHAR PRIMARY KEY, status VARCHAR NOT NULL, reason VARCHAR, comment VARCHAR,
                created_at FLOAT NOT NULL, updated_at FLOAT NOT NULL, body JSON NOT NULL);
            INSERT INTO jobs VALUES ('j', 'cancelled', 'r', 'c', 1.5, 2.5, '{"sub_job_configs": []}');
            CREATE TABLE sub_jobs (sub_job_id VARCHAR PRIMARY KEY, job_id VARCHAR NOT NULL, position INTEGER NOT NULL,
                job_type VARCHAR NOT NULL, status VARCHAR NOT NULL, config JSON NOT NULL);
            CREATE TABLE requests (request_id VARCHAR PRIMARY KEY, job_id VARCHAR NOT NULL, kind VARCHAR NOT NULL,
                status VARCHAR NOT NULL, created_at FLOAT NOT NULL, updated_at FLOAT NOT NULL, idempotency_key VARCHAR,
                body_sha256 VARCHAR, wants_tensors INTEGER NOT NULL, result JSON, result_file VARCHAR, error VARCHAR,
                error_type VARCHAR, blame VARCHAR);
            CREATE TABLE checkpoints (job_id VARCHAR, checkpoint_id VARCHAR, checkpoint_type VARCHAR NOT NULL,
                global_steps INTEGER, avg_loss FLOAT, created_at FLOAT NOT NULL, path VARCHAR NOT NULL,
                PRIMARY KEY (job_id, checkpoint_id));
            INSERT INTO checkpoints VALUES ('j', 'cp_1', 'resumable', 3, 0.5, 2.0, '/x');
        """)
    for _ in range(2):
        store = await Store.open(path)
        job = await store.one(schema.jobs, job_id="j")
        checkpoint = await store.one(schema.checkpoints, checkpoint_id="cp_1")
        await store.close()
        assert job is not None
        assert (job["reason"], job["body"], job["owner"]) == ("r", {"sub_job_configs": []}, None)
        assert checkpoint is not None
        assert checkpoint["global_steps"] == 3


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path):
    path = tmp_path / "newer.sqlite"
    await (await Store.open(path)).close()
    with sqlite3.connect(path) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UserError, match="newer version"):
        await Store.open(path)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "text").write_text("this is not a database, and long enough to be read as a header" * 30)
    with pytest.raises(UserError, match="not a usable database"):
        await Store.open(tmp_path / "text")


async def test_a_database_that_cannot_be_reached_is_refused_without_its_password():
    with pytest.raises(UserError) as caught:
        await Store.open("postgresql://someone:s3cret@127.0.0.1:1/nowhere")
    assert "127.0.0.1" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://h/db", "no url at all"])
def test_other_databases_are_refused(url: str):
    with pytest.raises(UserError, match="postgresql"):
        database_url(url)


async def test_rows_are_replaced_by_key_and_keep_json(database: Path | str):
    store = await Store.open(database)
    await store.put(schema.jobs, [JOB])
    await store.put(schema.jobs, [{**JOB, "status": "failed"}, {**JOB, "job_id": "k"}])
    rows = await store.rows(schema.jobs)
    await store.close()
    assert sorted((row["job_id"], row["status"]) for row in rows) == [("j", "failed"), ("k", "running")]
    assert rows[0]["body"] == {"a": [1, None]}


async def test_rows_outlive_the_store(database: Path | str):
    for _ in range(2):
        store = await Store.open(database, exclusive=True)
        await store.put(schema.jobs, [JOB])
        found = await store.rows(schema.jobs, status="running")
        await store.close()
        assert [row["job_id"] for row in found] == ["j"]


async def test_a_result_without_a_number_and_text_that_is_none_are_kept(database: Path | str):
    store = await Store.open(database)
    result = {"avg_loss": float("nan"), "lr": float("inf"), "text": "nul \x00 half \ud800"}
    await store.put(schema.requests, [{**REQUEST, "result": result, "error": "nul \x00 half \ud800 whole \U0001f600"}])
    row = await store.one(schema.requests, error="nul \x00 half \ud800 whole \U0001f600")
    await store.close()
    assert row is not None
    assert math.isnan(row["result"]["avg_loss"])
    assert (row["result"]["lr"], row["result"]["text"]) == (math.inf, "nul \x00 half \ud800")
    assert row["error"] == "nul \ufffd half \ufffd whole \U0001f600"
    assert row["arguments"] is None


async def test_a_change_that_fails_changes_nothing(database: Path | str):
    store = await Store.open(database)
    with pytest.raises(IntegrityError):
        await store.put(schema.jobs, [JOB, {**JOB, "job_id": "k", "status": None}])
    rows = await store.rows(schema.jobs)
    await store.close()
    assert rows == []


async def test_a_postgresql_database_serves_one_service_at_a_time(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.2)
    first = await Store.open(postgres_url, exclusive=True)
    with pytest.raises(UserError, match="another service uses postgresql") as caught:
        await Store.open(postgres_url, exclusive=True)
    assert "***" in str(caught.value)
    beside = await Store.open(postgres_url)
    assert await beside.rows(schema.jobs) == []
    await beside.close()
    await first.close()
    await (await Store.open(postgres_url, exclusive=True)).close()


async def test_a_store_reconnects_and_takes_its_lock_again(postgres_url: str, postgres_server: Postgres):
    store = await Store.open(postgres_url, exclusive=True)
    await store.put(schema.jobs, [JOB])
    postgres_server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{make_url(postgres_url).database}'"
    )
    assert len(await store.rows(schema.jobs)) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LOCK_WAIT_S", 0.2)
        with pytest.raises(UserError, match="another service"):
            await Store.open(postgres_url, exclusive=True)
    await store.close()


async def test_two_new_services_may_migrate_one_database_at_once(postgres_url: str):
    opened = await asyncio.gather(*(Store.open(postgres_url) for _ in range(4)))
    for store in opened:
        assert await store.rows(schema.jobs) == []
        await store.close()

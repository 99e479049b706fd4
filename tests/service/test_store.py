"""The database: migrations, both kinds of server, refusals."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect

from drydock.errors import UserError
from drydock.service import schema
from drydock.service.store import Store, database_url

JOB = {"job_id": "j", "status": "running", "created_at": 1.0, "updated_at": 1.0, "body": {"a": [1, None]}}


def columns(connection: Connection) -> dict[str, set[str]]:
    inspector = inspect(connection)
    return {table: {c["name"] for c in inspector.get_columns(table)} for table in inspector.get_table_names()}


async def test_migrations_make_exactly_the_tables_that_the_code_uses(tmp_path: Path):
    store = await Store.open(tmp_path / "new.sqlite")
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


async def test_rows_are_replaced_by_key_and_keep_json(tmp_path: Path):
    store = await Store.open(tmp_path / "rows.sqlite")
    await store.put(schema.jobs, [JOB])
    await store.put(schema.jobs, [{**JOB, "status": "failed"}, {**JOB, "job_id": "k"}])
    rows = await store.rows(schema.jobs)
    await store.close()
    assert sorted((row["job_id"], row["status"]) for row in rows) == [("j", "failed"), ("k", "running")]
    assert rows[0]["body"] == {"a": [1, None]}

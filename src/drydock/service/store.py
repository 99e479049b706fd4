"""The service's memory: jobs, their sub-jobs, requests and checkpoints in one SQLite database.

SQLAlchemy Core over SQLite in WAL mode. Every statement runs on the store's single thread, so the event loop never
waits for the disk and transactions never meet each other. The database has a version row; one that another version
wrote is refused, never guessed at. Rows are plain dicts; `jobs.py` and `request_table.py` own their meaning.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError

from drydock.errors import UserError

SCHEMA_VERSION = 1

_metadata = MetaData()

meta = Table("meta", _metadata, Column("key", String, primary_key=True), Column("value", Integer, nullable=False))

jobs = Table(
    "jobs",
    _metadata,
    Column("job_id", String, primary_key=True),
    Column("status", String, nullable=False),
    Column("reason", String),
    Column("comment", String),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("body", JSON, nullable=False),
    Index("jobs_by_status", "status"),
)
"""`body` is the creation body as it came."""

sub_jobs = Table(
    "sub_jobs",
    _metadata,
    Column("sub_job_id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("position", Integer, nullable=False),
    Column("job_type", String, nullable=False),
    Column("status", String, nullable=False),
    Column("config", JSON, nullable=False),
    Index("sub_jobs_by_job", "job_id"),
)

requests = Table(
    "requests",
    _metadata,
    Column("request_id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("idempotency_key", String),
    Column("body_sha256", String),
    Column("wants_tensors", Integer, nullable=False),
    Column("result", JSON(none_as_null=True)),
    Column("result_file", String),
    Column("error", String),
    Column("error_type", String),
    Column("blame", String),
    Index("requests_by_key", "job_id", "idempotency_key"),
    Index("requests_by_status", "status"),
)
"""`result_file` names a DSSST1 frame under `state_dir`/results, for results that hold tensors."""

checkpoints = Table(
    "checkpoints",
    _metadata,
    Column("job_id", String, primary_key=True),
    Column("checkpoint_id", String, primary_key=True),
    Column("checkpoint_type", String, nullable=False),
    Column("global_steps", Integer),
    Column("avg_loss", Float),
    Column("created_at", Float, nullable=False),
    Column("path", String, nullable=False),
)

Row = dict[str, Any]


class Store:
    """Asynchronous face of the database; opened by `Store.open`, closed by `close`."""

    def __init__(self, engine: Engine, executor: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._executor = executor

    @classmethod
    async def open(cls, path: Path) -> "Store":
        """Opens or makes the database at `path`. Raises UserError for another schema version or a foreign file."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="store")
        engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False, "timeout": 10})
        event.listen(engine, "connect", _set_pragmas)
        store = cls(engine, executor)
        try:
            await store.run(lambda connection: _prepare(connection, path))
        except DatabaseError as error:
            await store.close()
            raise UserError(f"{path} is not a usable database: {error.orig}; move it away or name another") from error
        except UserError:
            await store.close()
            raise
        return store

    async def run[T](self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in one transaction on the store's thread."""

        def transaction() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._executor, transaction)

    async def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Inserts rows, replacing those with the same primary key, in one transaction."""
        batch = list(rows)
        if batch:
            await self.run(lambda connection: _upsert(connection, table, batch))

    async def rows(self, table: Table, **equal: Any) -> list[Row]:
        """The rows whose columns equal the given values."""
        statement = select(table)
        for name, value in equal.items():
            statement = statement.where(table.c[name] == value)
        return await self.run(lambda connection: [dict(row._mapping) for row in connection.execute(statement)])

    async def one(self, table: Table, **equal: Any) -> Row | None:
        """The first such row."""
        found = await self.rows(table, **equal)
        return found[0] if found else None

    async def close(self) -> None:
        """Waits for what is queued and closes the database."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._engine.dispose)
        self._executor.shutdown()


def fail_unfinished(connection: Connection, table: Table, terminal: Iterable[str], changes: Row) -> list[str]:
    """Sets `changes` on every row whose status is not in `terminal`; the job ids concerned, once each."""
    unfinished = table.c.status.not_in(list(terminal))
    found = connection.execute(select(table.c.job_id).where(unfinished).distinct()).scalars().all()
    connection.execute(update(table).where(unfinished).values(**changes))
    return list(found)


def _upsert(connection: Connection, table: Table, rows: list[Row]) -> None:
    statement = insert(table)
    replaced = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
    keys = [column.name for column in table.primary_key]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced), rows)


def _prepare(connection: Connection, path: Path) -> None:
    _metadata.create_all(connection)
    found = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    if found is None:
        connection.execute(meta.insert().values(key="schema_version", value=SCHEMA_VERSION))
    elif found != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {found}, this service writes version {SCHEMA_VERSION}: "
            "start it with another --state-dir"
        )


def _set_pragmas(connection: sqlite3.Connection, _: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {pragma}")

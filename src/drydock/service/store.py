"""The service's memory: jobs, their sub-jobs, requests, checkpoints, tokens and usage in one database.

SQLAlchemy Core over SQLite in WAL mode (a file of the state folder) or PostgreSQL (by URL). Every statement runs on
the store's single thread, so the event loop never waits for the disk and transactions never meet each other. The
schema is brought up to date when the store is opened; a database that a newer version wrote is refused.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, inspect, make_url, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError

from drydock.errors import UserError
from drydock.service.schema import Row

_FIRST_REVISION = "0001"
_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Store:
    """Asynchronous face of the database; opened by `Store.open`, closed by `close`."""

    def __init__(self, engine: Engine, executor: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._executor = executor

    @classmethod
    async def open(cls, where: Path | str) -> "Store":
        """Opens or makes the database, a SQLite file or a database URL, and migrates it.

        Raises UserError, which names no password, for a database that cannot be used or that a newer version wrote.
        """
        url = database_url(where)
        store = cls(_engine(url), ThreadPoolExecutor(1, thread_name_prefix="store"))
        shown = url.render_as_string(hide_password=True) if isinstance(where, str) else str(where)
        try:
            await store.run(_migrate)
        except DatabaseError as error:
            await store.close()
            raise UserError(f"{shown} is not a usable database: {error.orig}; move it away or name another") from error
        except CommandError as error:
            await store.close()
            raise UserError(
                f"{shown} was written by a newer version of drydock ({error}): update, or start with another database"
            ) from error
        return store

    async def run[T](self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in one transaction on the store's thread."""

        def transaction() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._executor, transaction)

    async def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Inserts rows, replacing those with the same primary key, in one transaction. All rows have the same keys."""
        batch = list(rows)
        if batch:
            await self.run(lambda connection: upsert(connection, table, batch))

    async def rows(self, table: Table, **equal: Any) -> list[Row]:
        """The rows whose columns equal the given values."""
        return await self.run(lambda connection: fetch(connection, table, **equal))

    async def one(self, table: Table, **equal: Any) -> Row | None:
        """The first such row."""
        found = await self.rows(table, **equal)
        return found[0] if found else None

    async def close(self) -> None:
        """Waits for what is queued and closes the database."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._engine.dispose)
        self._executor.shutdown()


def database_url(where: Path | str) -> URL:
    """The URL of a SQLite file, or a URL that is one already. Raises UserError for one that cannot be used."""
    if isinstance(where, Path):
        return URL.create("sqlite", database=str(where))
    try:
        url = make_url(where)
    except ArgumentError as error:
        raise UserError("the database URL cannot be read: use postgresql://user:password@host/name") from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in _INSERT:
        raise UserError(f"databases of kind {url.get_backend_name()!r} are not supported: use sqlite or postgresql")
    return url


def fetch(connection: Connection, table: Table, **equal: Any) -> list[Row]:
    """The rows whose columns equal the given values, inside a transaction."""
    statement = select(table)
    for name, value in equal.items():
        statement = statement.where(table.c[name] == value)
    return [dict(row._mapping) for row in connection.execute(statement)]


def upsert(connection: Connection, table: Table, rows: list[Row]) -> None:
    """Inserts rows, replacing the given columns of those with the same primary key, inside a transaction."""
    statement = _INSERT[connection.dialect.name](table)
    keys = [column.name for column in table.primary_key]
    replaced = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced), rows)


def fail_unfinished(connection: Connection, table: Table, terminal: Iterable[str], changes: Row) -> list[str]:
    """Sets `changes` on every row whose status is not in `terminal`; the job ids concerned, once each."""
    unfinished = table.c.status.not_in(list(terminal))
    found = connection.execute(select(table.c.job_id).where(unfinished).distinct()).scalars().all()
    connection.execute(update(table).where(unfinished).values(**changes))
    return list(found)


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 10})
        event.listen(engine, "connect", _set_pragmas)
        return engine
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise UserError("PostgreSQL needs the extra `postgres`: pip install 'drydock-rl[postgres]'") from error


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "drydock:service/migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    tables = set(inspect(connection).get_table_names())
    if "jobs" in tables and "alembic_version" not in tables:
        command.stamp(config, _FIRST_REVISION)
    command.upgrade(config, "head")


def _set_pragmas(connection: sqlite3.Connection, _: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {pragma}")

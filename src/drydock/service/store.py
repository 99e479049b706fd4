"""The service's memory: jobs, their sub-jobs, requests, checkpoints, tokens and usage in one database.

SQLAlchemy Core over SQLite in WAL mode (a file of the state folder) or PostgreSQL (by URL). Every statement runs on
the store's single thread, so the event loop never waits for the disk and transactions never meet each other. The
schema is brought up to date when the store is opened; a database that a newer version wrote is refused.

A PostgreSQL database belongs to one service at a time: its only connection holds an advisory lock, so that the lock
ends with the process and is taken again by whoever connects anew. (A SQLite file is guarded by the state folder.)
Text that a database cannot hold, NUL characters and half surrogate pairs, is stored with U+FFFD in their place.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, inspect, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError

from drydock.errors import UserError
from drydock.service.schema import Row

_FIRST_REVISION = "0001"
_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_SERVICE_LOCK = 0x647279646F636B31
_MIGRATION_LOCK = 0x647279646F636B32
LOCK_WAIT_S = 5.0
"""How long a service waits for the lock of one that has just died."""
_SESSION = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""Settings of a PostgreSQL session: no wait without an end, and a vanished client's lock falls within 30 s."""


class Store:
    """Asynchronous face of the database; opened by `Store.open`, closed by `close`."""

    def __init__(self, engine: Engine, executor: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._executor = executor

    @classmethod
    async def open(cls, where: Path | str, *, exclusive: bool = False) -> "Store":
        """Opens or makes the database, a SQLite file or a database URL, and migrates it.

        exclusive: refuse a PostgreSQL database that another store has opened so; for the service itself.
        Raises UserError, which names no password, for a database that cannot be used, that another service uses, or
        that a newer version wrote.
        """
        url = database_url(where)
        shown = url.render_as_string(hide_password=True) if isinstance(where, str) else str(where)
        store = cls(_engine(url, shown, exclusive), ThreadPoolExecutor(1, thread_name_prefix="store"))
        try:
            await store.run(_migrate)
        except UserError:
            await store.close()
            raise
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
        statement = statement.where(table.c[name] == _storable(value))
    return [dict(row._mapping) for row in connection.execute(statement)]


def insert_into(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that can be told what to do where a row is there already."""
    return _INSERT[connection.dialect.name](table)


def upsert(connection: Connection, table: Table, rows: list[Row]) -> None:
    """Inserts rows, replacing the given columns of those with the same primary key, inside a transaction."""
    statement = insert_into(connection, table)
    keys = [column.name for column in table.primary_key]
    replaced = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    storable = [{name: _storable(value) for name, value in row.items()} for row in rows]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced), storable)


def _storable(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _engine(url: URL, shown: str, exclusive: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 10})
        event.listen(engine, "connect", _set_pragmas)
        return engine
    options = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    try:
        engine = create_engine(
            url,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 10, "options": options},
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise UserError("PostgreSQL needs the extra `postgres`: pip install 'drydock-rl[postgres]'") from error
    if exclusive:
        event.listen(engine, "connect", lambda connection, _: _lock(connection, shown))
    return engine


def _lock(connection: DBAPIConnection, shown: str) -> None:
    """Makes the database this connection's alone. Raises UserError when another service has it."""
    ends = time.monotonic() + LOCK_WAIT_S
    cursor = connection.cursor()
    while True:
        cursor.execute(f"SELECT pg_try_advisory_lock({_SERVICE_LOCK})")
        row = cursor.fetchone()
        connection.commit()
        if row is not None and row[0]:
            return
        if time.monotonic() > ends:
            raise UserError(f"another service uses {shown}: stop it or name another database")
        time.sleep(0.1)


def _migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
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

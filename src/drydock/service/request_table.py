"""Every data-plane request of the service: its status, its result, and who waits for it.

A request lives in memory from its POST until it is both over and written; the store is written behind, at most
`FLUSH_S` later in one transaction for all that changed, so that a small generate call never waits for the disk.
Requests whose repetition would do harm (step, save, weight sync) are written before a worker hears of them and before
they are answered. A worker may forget its reply once the result is in the store (`RequestRecord.settled`), so that a
restarted service gets from the worker what it had not written (`resume`).
A result with tensors is kept as a DSSST1 frame in a file beside the database, not in it.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from drydock.errors import DrydockError
from drydock.service import schema as tables
from drydock.service.changes import Changes
from drydock.service.ended_requests import ended_rows
from drydock.service.meters import Entry, Metered, add, day_of
from drydock.service.problems import Refusal
from drydock.service.request_record import HARMLESS_KINDS, Outcome, RequestRecord
from drydock.service.result_files import ResultFiles
from drydock.service.schema import Row
from drydock.service.store import Store, upsert
from drydock.service.worker_group import OperationError, WorkerStopped
from drydock.wire.blob import Bytes
from drydock.wire.status import RequestStatus, advance

FLUSH_S = 0.05
KEPT_IN_MEMORY = 1024
"""Finished requests that are answered from memory; older ones are read from the store."""
KEYS_IN_MEMORY = 32_768
"""Idempotency keys of a live job that are found in memory; older ones are looked up in the store."""

logger = logging.getLogger(__name__)


class RequestTable:
    """Opens, drives, finds and writes requests."""

    def __init__(self, store: Store, results: ResultFiles) -> None:
        self.changes = Changes()
        self._store = store
        self._results = results
        self._records: dict[str, RequestRecord] = {}
        self._keys: dict[str, dict[str, str]] = {}
        self._dirty: dict[str, RequestRecord] = {}
        self._wake = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._flusher = asyncio.create_task(self._flush_forever(), name="request table writer")
        self._work: set[asyncio.Task[None]] = set()
        self._asides: set[asyncio.Task[None]] = set()
        self._holds: set[asyncio.Future[None]] = set()
        self._stopping = False

    def open_job(self, job_id: str) -> None:
        """From now on idempotency keys of this job are remembered in memory."""
        self._keys[job_id] = {}

    async def reopen_job(self, job_id: str) -> None:
        """As `open_job`, for a job that an earlier API process opened."""
        keys = await self._store.run(lambda connection: _latest_keys(connection, job_id))
        self._keys[job_id] = {**keys, **self._keys.get(job_id, {})}

    def open_kinds(self) -> dict[str, float]:
        """How many requests have not ended, by kind."""
        counts: dict[str, float] = {}
        for record in self._records.values():
            if not record.status.terminal:
                counts[record.kind] = counts.get(record.kind, 0.0) + 1
        return counts

    def close_job(self, job_id: str) -> None:
        """Keys of a job that is over are looked up in the store."""
        self._keys.pop(job_id, None)

    def start(
        self,
        job_id: str,
        kind: str,
        work: Callable[[RequestRecord], Awaitable[Outcome]],
        *,
        idempotency_key: str | None = None,
        body_sha256: str | None = None,
        wants_tensors: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> RequestRecord:
        """Opens a request and drives `work` to its end in a task of its own; calls start in the order made."""
        now = time.time()
        record = RequestRecord(
            request_id=f"req_{uuid.uuid4().hex}",
            job_id=job_id,
            kind=kind,
            created_at=now,
            updated_at=now,
            idempotency_key=idempotency_key,
            body_sha256=body_sha256,
            wants_tensors=wants_tensors,
            arguments=arguments,
        )
        self._begin(record, work)
        return record

    def resume(self, record: RequestRecord, work: Callable[[RequestRecord], Awaitable[Outcome]]) -> None:
        """Goes on with a request that an earlier API process left unfinished."""
        record.resumed = True
        self._begin(record, work)

    def _begin(self, record: RequestRecord, work: Callable[[RequestRecord], Awaitable[Outcome]]) -> None:
        self._records[record.request_id] = record
        keys = self._keys.get(record.job_id)
        if keys is not None and record.idempotency_key is not None:
            keys[record.idempotency_key] = record.request_id
            if len(keys) > KEYS_IN_MEMORY:
                del keys[next(iter(keys))]
        record.before_asking = partial(self._before_asking, record)
        self._changed(record)
        _keep(self._work, asyncio.create_task(self._drive(record, work), name=f"{record.kind} {record.request_id}"))

    async def _before_asking(self, record: RequestRecord) -> None:
        self._changed(record)
        if record.kind not in HARMLESS_KINDS:
            await self.written(record)

    def emit(self, record: RequestRecord, event: dict[str, Any]) -> None:
        """Adds an event to a streaming request and wakes its followers."""
        record.events.append(event)
        self.changes.tell(record.job_id, record)

    def afterwards(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `work` beside the call that asked for it; it is dropped when the service stops."""
        _keep(self._asides, asyncio.create_task(work()))

    async def get(self, job_id: str, request_id: str) -> RequestRecord | None:
        """The request, from memory or the store; None when the job has no such request."""
        record = self._records.get(request_id)
        if record is None:
            row = await self._store.one(tables.requests, request_id=request_id)
            record = RequestRecord.from_row(row) if row else None
        if record is None or record.job_id != job_id:
            return None
        record.claims += 1
        return record

    async def ended_since(self, job_id: str, since: float) -> list[RequestRecord]:
        """The job's requests that ended at or after `since`, in the order of their ends; results are left out."""
        await self._flush()
        rows = await self._store.run(lambda connection: ended_rows(connection, job_id, since))
        return [RequestRecord.from_row(row) for row in rows]

    async def find(self, job_id: str, idempotency_key: str | None, body_sha256: str | None) -> RequestRecord | None:
        """The request that was made with this key. Raises Refusal when its body was another one."""
        if idempotency_key is None:
            return None
        known = self._keys.get(job_id)
        request_id = known.get(idempotency_key) if known is not None else None
        if request_id is not None:
            record = await self.get(job_id, request_id)
        elif known is not None and len(known) < KEYS_IN_MEMORY:
            record = None
        else:
            row = await self._store.one(tables.requests, job_id=job_id, idempotency_key=idempotency_key)
            record = RequestRecord.from_row(row) if row else None
        if record is not None and record.body_sha256 != body_sha256:
            raise Refusal(422, "Idempotency-Key: this key was already used for a call with another body")
        return record

    async def hold(self, record: RequestRecord, timeout_s: float, hold: asyncio.Future[None] | None = None) -> None:
        """Returns when the request is over, `timeout_s` passed, the service stops, or `hold` is resolved."""
        if record.status.terminal or self._stopping:
            return
        waiter = hold or asyncio.get_running_loop().create_future()
        record.waiters.add(waiter)
        self._holds.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter
        finally:
            record.waiters.discard(waiter)
            self._holds.discard(waiter)

    async def written(self, record: RequestRecord) -> None:
        """Returns when the request as it stands is in the store."""
        if record.request_id in self._dirty or self._flushing.locked():
            await self._flush()

    async def all_written(self) -> None:
        """Returns when every request as it stands, and what it used, is in the store."""
        await self._flush()

    def read_frame(self, record: RequestRecord) -> Bytes | None:
        """The DSSST1 frame of a result with tensors (reads a file: call it off the event loop)."""
        if record.outcome.frame is not None or record.result_file is None:
            return record.outcome.frame
        return self._results.read(record.result_file)

    def release_holds(self) -> None:
        """Answers every held call as it stands (the service is stopping)."""
        self._stopping = True
        for hold in list(self._holds):
            _resolve(hold)
        self.changes.close()

    async def close(self) -> None:
        """Waits for the requests' tasks (their workers are gone by now) and writes what is left."""
        for aside in self._asides:
            aside.cancel()
        if self._work:
            await asyncio.wait(self._work, timeout=5)
        self._flusher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._flusher
        await self._flush()

    async def _drive(self, record: RequestRecord, work: Callable[[RequestRecord], Awaitable[Outcome]]) -> None:
        if record.status is RequestStatus.PENDING:
            record.status = advance(record.status, RequestStatus.RUNNING)
        try:
            record.outcome = await work(record)
            status = RequestStatus.COMPLETED
        except WorkerStopped as stopped:
            status, record.error, record.error_type = RequestStatus.CANCELLED, str(stopped), "Cancelled"
        except OperationError as error:
            status = RequestStatus.CANCELLED if error.cancelled else RequestStatus.FAILED
            record.error, record.error_type, record.blame = error.message, error.error_type, error.blame
        except DrydockError as error:
            status = RequestStatus.FAILED
            record.error, record.error_type, record.blame = str(error), type(error).__name__, error.blame.value
        except Exception as error:
            logger.exception("request %s (%s) failed inside the service", record.request_id, record.kind)
            status = RequestStatus.FAILED
            record.error, record.error_type = f"internal error: {error!r}", type(error).__name__
            record.blame = "infrastructure"
        record.status = advance(record.status, status)
        record.updated_at = time.time()
        self._changed(record)
        for waiter in record.waiters:
            _resolve(waiter)
        self.changes.tell(record.job_id, record)

    def _changed(self, record: RequestRecord) -> None:
        self._dirty[record.request_id] = record
        self._wake.set()

    async def _flush_forever(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(FLUSH_S)
            try:
                await self._flush()
            except Exception:
                logger.exception("writing requests to the store failed; trying again")
                await asyncio.sleep(1.0)

    async def _flush(self) -> None:
        async with self._flushing:
            self._wake.clear()
            batch, self._dirty = self._dirty, {}
            if not batch:
                return
            records = list(batch.values())
            try:
                await asyncio.sleep(0)  # a request that was just begun sets its `arguments` first
                while unfiled := [record for record in records if _lacks_file(record)]:
                    await asyncio.to_thread(self._write_frames, unfiled)
                written = [(record.row(), record.outcome.metered) for record in records]
                await self._store.run(lambda connection: _write(connection, written))
            except BaseException:
                self._dirty = {**batch, **self._dirty}
                self._wake.set()
                raise
            for record, (row, metered) in zip(records, written, strict=True):
                if RequestStatus(row["status"]).terminal:
                    _settle(record)
                if metered:
                    record.outcome = replace(record.outcome, metered=())
                if record.result_file is not None and record.outcome.frame is not None:
                    record.outcome = replace(record.outcome, frame=None)
            self._evict()

    def _write_frames(self, records: list[RequestRecord]) -> None:
        for record in records:
            if (frame := record.outcome.frame) is not None:
                record.result_file = self._results.write(record.request_id, frame)

    def _evict(self) -> None:
        surplus = len(self._records) - KEPT_IN_MEMORY
        if surplus <= 0:
            return
        over = [r for r in self._records.values() if r.status.terminal and r.request_id not in self._dirty]
        for record in over[:surplus]:
            del self._records[record.request_id]


def _lacks_file(record: RequestRecord) -> bool:
    """Whether its frame is not in a file yet; a record may have got one while others were written."""
    return record.outcome.frame is not None and record.result_file is None


def _write(connection: Connection, written: Sequence[tuple[Row, Sequence[Metered]]]) -> None:
    upsert(connection, tables.requests, [row for row, _ in written])
    add(
        connection,
        (Entry(day_of(row["updated_at"]), row["job_id"], item) for row, metered in written for item in metered),
    )


def _settle(record: RequestRecord) -> None:
    for call in record.settled:
        call()
    record.settled = []


def _latest_keys(connection: Connection, job_id: str) -> dict[str, str]:
    """Request ids by the newest idempotency keys of a job, oldest first."""
    table = tables.requests
    rows = connection.execute(
        select(table.c.idempotency_key, table.c.request_id)
        .where(table.c.job_id == job_id, table.c.idempotency_key.is_not(None))
        .order_by(table.c.created_at.desc())
        .limit(KEYS_IN_MEMORY)
    ).all()
    return {row.idempotency_key: row.request_id for row in reversed(rows)}


def _keep(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

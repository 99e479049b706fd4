"""The meters that run by themselves: time on GPUs and CPU slots, and checkpoints on disk.

Every `TICK_S` seconds, when somebody asks, and at the end, the time since the last tick is added for each sub-job
that holds room. Where counting goes on is worked out from the job's row and what was counted before, so that a
restarted API process counts the time in which its workers went on without it, once. A job that left between two ticks
is counted up to the end that its row names. Tokens are counted with their requests (`RequestTable`).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from drydock.service import schema as tables
from drydock.service.meters import Entry, Meter, Metered, add, by_day, day_of, slot_meter
from drydock.service.store import Store, fetch

TICK_S = 2.0
STORAGE_TICK_S = 60.0
_GIB = float(1 << 30)
_HOUR_S = 3600.0

Placed = tuple[str, str, str, int]
"""Job id, sub-job id, hardware type and slots of a sub-job that holds room."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    job_id: str
    meter: Meter
    slots: int
    counted_until: float


class Usage:
    """Counts what is held from its creation (inside a running loop) until `close`."""

    def __init__(
        self,
        store: Store,
        placed: Callable[[], Iterable[Placed]],
        *,
        tick_s: float = TICK_S,
        storage_tick_s: float = STORAGE_TICK_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._placed = placed
        self._tick_s = tick_s
        self._storage_tick_s = storage_tick_s
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._stored_until = clock()
        self._ticking = asyncio.Lock()
        self._ticker = asyncio.create_task(self._tick_forever(), name="usage")

    async def close(self) -> None:
        """Counts for the last time: call it after the last job has ended."""
        self._ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticker
        await self.tick(storage=True)

    async def tick(self, *, storage: bool = False) -> None:
        """Counts up to now what is held, with `storage` also what lies on disk."""
        async with self._ticking:
            now = self._clock()
            placed = {sub_job: (job, hardware, slots) for job, sub_job, hardware, slots in self._placed()}
            known = {sub_job: _copy(entry) for sub_job, entry in self._running.items()}
            stored_for = max(0.0, now - self._stored_until) if storage else 0.0

            def count(connection: Connection) -> None:
                entries: list[Entry] = []
                for sub_job, (job, hardware, slots) in placed.items():
                    if sub_job not in known:
                        known[sub_job] = _begin(connection, job, sub_job, slot_meter(hardware), slots, now)
                for sub_job in list(known):
                    end: float | None = now
                    if sub_job not in placed:
                        end = _ended_at(connection, known[sub_job].job_id)
                    entries += _held(sub_job, known[sub_job], end)
                    if sub_job not in placed and end is not None:
                        del known[sub_job]
                entries += _stored(connection, stored_for, day_of(now))
                add(connection, entries)

            await self._store.run(count)
            self._running = known
            if storage:
                self._stored_until = max(now, self._stored_until)

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                await self.tick(storage=self._clock() - self._stored_until >= self._storage_tick_s)
            except Exception:
                logger.exception("usage could not be written; it is counted with the next tick")


def _copy(entry: _Running) -> _Running:
    return _Running(entry.job_id, entry.meter, entry.slots, entry.counted_until)


def _begin(connection: Connection, job_id: str, sub_job_id: str, meter: Meter, slots: int, now: float) -> _Running:
    """Where counting goes on for a sub-job: its job's start, and what was counted since."""
    rows = fetch(connection, tables.jobs, job_id=job_id)
    started_at = rows[0]["started_at"] if rows and rows[0]["started_at"] is not None else now
    usage = tables.usage
    counted = connection.execute(
        select(func.sum(usage.c.quantity)).where(
            usage.c.job_id == job_id, usage.c.sub_job_id == sub_job_id, usage.c.meter == meter.value
        )
    ).scalar()
    return _Running(job_id, meter, slots, min(now, started_at + (counted or 0.0) / max(1, slots)))


def _held(sub_job_id: str, entry: _Running, end: float | None) -> list[Entry]:
    """The time since the last count, which is then up to `end`."""
    if end is None or end <= entry.counted_until:
        return []
    spans = by_day(entry.counted_until, end)
    entry.counted_until = end
    return [Entry(day, entry.job_id, Metered(entry.meter, seconds * entry.slots, sub_job_id)) for day, seconds in spans]


def _ended_at(connection: Connection, job_id: str) -> float | None:
    """When a job that holds nothing any more gave it back; None when its row does not say so yet."""
    rows = fetch(connection, tables.jobs, job_id=job_id)
    return rows[0]["ended_at"] if rows else 0.0


def _stored(connection: Connection, seconds: float, day: str) -> list[Entry]:
    if seconds <= 0:
        return []
    saved = tables.checkpoints
    sizes = connection.execute(select(saved.c.job_id, func.sum(saved.c.size_bytes)).group_by(saved.c.job_id))
    return [
        Entry(day, job_id, Metered(Meter.STORAGE_GIB_HOURS, float(size or 0) / _GIB * seconds / _HOUR_S))
        for job_id, size in sizes
    ]

"""What is metered, and how a quantity is added to what was metered before.

Quantities are only ever added, per UTC day, job, sub-job and meter, inside the transaction of whatever they were used
for: the tokens of a request are counted when, and only when, the finished request itself is written.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection

from drydock.service import schema as tables
from drydock.service.pool import CPU
from drydock.service.store import insert_into

OF_THE_JOB = ""
"""Sub-job id of what belongs to a job as a whole."""


class Meter(StrEnum):
    """Every meter. Tokens of requests that fail or are cancelled are not counted."""

    GPU_SECONDS = "gpu_seconds"
    """Seconds times GPUs held, from placement until the job's processes are gone, busy or not."""
    CPU_SLOT_SECONDS = "cpu_slot_seconds"
    """The same for CPU slots."""
    PROMPT_TOKENS = "prompt_tokens"
    """Tokens of prompts given to a sampler, those of its prefix cache included, and of `forward` batches."""
    SAMPLED_TOKENS = "sampled_tokens"
    """Tokens that a sampler emitted."""
    TRAINED_TOKENS = "trained_tokens"
    """Tokens of forward-backward batches, without padding."""
    STORAGE_GIB_HOURS = "storage_gib_hours"
    """Checkpoints, GiB times hours, while the service runs."""


@dataclass(frozen=True, slots=True)
class Metered:
    """A quantity to be added."""

    meter: Meter
    quantity: float
    sub_job_id: str = OF_THE_JOB


@dataclass(frozen=True, slots=True)
class Entry:
    """A quantity of a job on a day (UTC, YYYY-MM-DD)."""

    day: str
    job_id: str
    metered: Metered


def slot_meter(hardware: str) -> Meter:
    """The meter of time on a hardware type."""
    return Meter.CPU_SLOT_SECONDS if hardware == CPU else Meter.GPU_SECONDS


def day_of(seconds: float) -> str:
    """The UTC day of a time since 1970."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def by_day(begin: float, end: float) -> Iterator[tuple[str, float]]:
    """The UTC days that a span touches, each with its seconds; nothing for a span that ends before it begins."""
    while begin < end:
        midnight = datetime.fromtimestamp(begin, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        stop = min(end, (midnight + timedelta(days=1)).timestamp())
        yield day_of(begin), stop - begin
        begin = stop


def add(connection: Connection, entries: Iterable[Entry]) -> None:
    """Adds the entries to the usage table, inside a transaction. Quantities of 0 or less change nothing."""
    sums: dict[tuple[str, str, str, str], float] = {}
    for entry in entries:
        if entry.metered.quantity > 0:
            key = (entry.day, entry.job_id, entry.metered.sub_job_id, entry.metered.meter.value)
            sums[key] = sums.get(key, 0.0) + entry.metered.quantity
    if not sums:
        return
    usage = tables.usage
    statement = insert_into(connection, usage)
    keys = ("day", "job_id", "sub_job_id", "meter")
    statement = statement.on_conflict_do_update(
        index_elements=keys, set_={"quantity": usage.c.quantity + statement.excluded.quantity}
    )
    connection.execute(statement, [{**dict(zip(keys, key, strict=True)), "quantity": q} for key, q in sums.items()])

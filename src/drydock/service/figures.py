"""The figures that are read off the live service when somebody asks for its metrics."""

from collections.abc import Mapping

from sqlalchemy import Connection, func, select

from drydock.service import schema as tables
from drydock.service.context import Service
from drydock.wire.status import JobStatus


async def collect(service: Service) -> None:
    """Brings the service's gauges up to date."""
    jobs, tokens = await service.store.run(lambda connection: (_jobs(connection), _tokens(connection)))
    gauge = service.metrics.set
    gauge("drydock_jobs", "Jobs by status.", ("status",), _by_one(jobs))
    gauge("drydock_pool_slots", "GPUs or CPU slots of the pool.", ("hardware", "state"), _pool(service))
    open_kinds = _by_one(service.requests.open_kinds())
    gauge("drydock_open_requests", "Requests that have not ended, by kind.", ("kind",), open_kinds)
    gauge("drydock_tokens", "Tokens since the first start, by meter.", ("meter",), _by_one(tokens))
    sizes = _by_one(service.jobs.worker_rss())
    gauge("drydock_worker_resident_bytes", "Resident memory of all workers, by job type.", ("job_type",), sizes)


def _by_one(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(key,): float(value) for key, value in values.items()}


def _pool(service: Service) -> dict[tuple[str, ...], float]:
    values: dict[tuple[str, ...], float] = {}
    for hardware in service.pool.hardware_types:
        counts = service.pool.counts(hardware)
        for state in ("total", "in_use", "pending"):
            values[hardware, state] = float(getattr(counts, state))
    return values


def _jobs(connection: Connection) -> dict[str, float]:
    counted = connection.execute(select(tables.jobs.c.status, func.count()).group_by(tables.jobs.c.status))
    return {status.value: 0.0 for status in JobStatus} | {status: float(count) for status, count in counted}


def _tokens(connection: Connection) -> dict[str, float]:
    usage = tables.usage
    summed = select(usage.c.meter, func.sum(usage.c.quantity)).where(usage.c.meter.like("%_tokens"))
    return {meter: float(total) for meter, total in connection.execute(summed.group_by(usage.c.meter))}

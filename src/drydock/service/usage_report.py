"""What was used, summed by job, by user or by day, with its cost where prices are set.

Whose usage it is is read off the job, which keeps its owner for good.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, func, select

from drydock.service import schema as tables
from drydock.service.meters import Meter


class By(StrEnum):
    """What a line of a report stands for."""

    JOB = "job"
    USER = "user"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which usage a report covers; None covers all. since, until: first and last UTC day."""

    job_id: str | None = None
    user: str | None = None
    since: str | None = None
    until: str | None = None


def report(connection: Connection, by: By, scope: Scope, prices: Mapping[Meter, float]) -> dict[str, Any]:
    """Lines with their sums of every meter, jobs by age, users by name, days by date; and the total."""
    jobs, usage = tables.jobs, tables.usage
    key = {By.JOB: usage.c.job_id, By.USER: jobs.c.owner, By.DAY: usage.c.day}[by]
    sums = _sums(connection, scope, key)
    lines = [{**_label(by, name), **_amounts(meters, prices)} for name, meters in sums.items()]
    if by is By.JOB:
        rows = connection.execute(select(jobs.c.job_id, jobs.c.owner, jobs.c.name, jobs.c.created_at))
        known = {row.job_id: row for row in rows}
        for line in lines:
            job = known.get(line["job_id"])
            line |= {"user": job.owner if job else None, "name": job.name if job else None}
        lines.sort(key=lambda line: known[line["job_id"]].created_at if line["job_id"] in known else 0.0)
    else:
        lines.sort(key=lambda line: line[by.value] or "")
    return {
        "by": by.value,
        "since": scope.since,
        "until": scope.until,
        "usage": lines,
        "total": _amounts(_added(sums.values()), prices),
        "prices": {meter.value: price for meter, price in prices.items()},
    }


def job_report(connection: Connection, job_id: str, prices: Mapping[Meter, float]) -> dict[str, Any]:
    """One job's usage, by sub-job and by day as well, and the price of one unit of each meter that has one."""
    scope = Scope(job_id=job_id)
    usage = tables.usage
    by_sub_job = _sums(connection, scope, usage.c.sub_job_id)
    by_day = _sums(connection, scope, usage.c.day)
    owner = connection.execute(select(tables.jobs.c.owner).where(tables.jobs.c.job_id == job_id)).scalar()
    return {
        "job_id": job_id,
        "user": owner,
        **_amounts(_added(by_sub_job.values()), prices),
        "prices": {meter.value: price for meter, price in prices.items()},
        "sub_jobs": [
            {"sub_job_id": name or None, **_amounts(meters, prices)} for name, meters in sorted(by_sub_job.items())
        ],
        "days": [{"day": name, **_amounts(meters, prices)} for name, meters in sorted(by_day.items())],
    }


def _sums(connection: Connection, scope: Scope, key: Any) -> dict[Any, dict[str, float]]:
    jobs, usage = tables.jobs, tables.usage
    joined = usage.outerjoin(jobs, usage.c.job_id == jobs.c.job_id)
    statement = select(key, usage.c.meter, func.sum(usage.c.quantity)).select_from(joined).group_by(key, usage.c.meter)
    for column, value in ((usage.c.job_id, scope.job_id), (jobs.c.owner, scope.user)):
        if value is not None:
            statement = statement.where(column == value)
    if scope.since is not None:
        statement = statement.where(usage.c.day >= scope.since)
    if scope.until is not None:
        statement = statement.where(usage.c.day <= scope.until)
    sums: dict[Any, dict[str, float]] = {}
    for name, meter, quantity in connection.execute(statement):
        sums.setdefault(name, {})[meter] = float(quantity)
    return sums


def _label(by: By, name: Any) -> dict[str, Any]:
    return {by.value if by is not By.JOB else "job_id": name}


def _added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for meter, quantity in part.items():
            total[meter] = total.get(meter, 0.0) + quantity
    return total


def _amounts(meters: Mapping[str, float], prices: Mapping[Meter, float]) -> dict[str, Any]:
    """Every meter, 0 where nothing was used, and the cost when any price is set."""
    amounts: dict[str, Any] = {"meters": {meter.value: meters.get(meter.value, 0.0) for meter in Meter}}
    if prices:
        amounts["cost"] = sum(meters.get(meter.value, 0.0) * price for meter, price in prices.items())
    return amounts

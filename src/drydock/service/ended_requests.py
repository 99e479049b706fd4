"""Which requests of a job ended after a given time, read from the store without their results."""

from typing import Any

from sqlalchemy import Connection, select

from drydock.service.schema import Row, requests
from drydock.wire.status import RequestStatus

MOST = 10_000
_ENDED = [status.value for status in RequestStatus if status.terminal]


def ended_rows(connection: Connection, job_id: str, since: float) -> list[Row]:
    """The latest `MOST` such requests, in the order of their ends; `result` and `arguments` are None."""
    columns = [column for column in requests.c if column.name not in ("result", "arguments")]
    statement: Any = (
        select(*columns)
        .where(requests.c.job_id == job_id, requests.c.updated_at >= since, requests.c.status.in_(_ENDED))
        .order_by(requests.c.updated_at.desc())
        .limit(MOST)
    )
    rows = [{**row._mapping, "result": None, "arguments": None} for row in connection.execute(statement)]
    return rows[::-1]

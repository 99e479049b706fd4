"""The tables of the service's database. Rows are plain dicts; the modules that own a table own its meaning.

A change here needs a new file in `migrations/versions`; a test compares what the migrations make with these tables.
"""

import json
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Dialect, Float, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator

Row = dict[str, Any]

metadata = MetaData()


class _JsonText(TypeDecorator[Any]):
    """JSON as Python writes it, in a text column: PostgreSQL's own type refuses NaN, which a diverged loss is."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


_json = JSON(none_as_null=True).with_variant(_JsonText(), "postgresql")

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("status", String, nullable=False),
    Column("reason", String),
    Column("comment", String),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("body", _json, nullable=False),
    Column("name", String),
    Column("owner", String),
    Column("owner_role", String),
    Column("hardware", String),
    Column("slots", Integer),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("creation_key", String),
    Index("jobs_by_status", "status"),
    Index("jobs_by_owner", "owner"),
)
"""`body` is the creation body as it came; `slots` GPUs (or CPU slots) of `hardware` asked for; `started_at` the time
at which it got them, `ended_at` the time at which they were free again; `creation_key` the Idempotency-Key that it was
created with. Times are seconds since 1970."""

sub_jobs = Table(
    "sub_jobs",
    metadata,
    Column("sub_job_id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("position", Integer, nullable=False),
    Column("job_type", String, nullable=False),
    Column("status", String, nullable=False),
    Column("config", _json, nullable=False),
    Column("slots", Integer),
    Column("devices", _json),
    Column("worker", _json),
    Column("restarts", Integer),
    Index("sub_jobs_by_job", "job_id"),
)
"""`devices`: GPU indices it was given. `worker`: how its process is found again after a restart of the API process."""

requests = Table(
    "requests",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("idempotency_key", String),
    Column("body_sha256", String),
    Column("wants_tensors", Integer, nullable=False),
    Column("result", _json),
    Column("result_file", String),
    Column("error", String),
    Column("error_type", String),
    Column("blame", String),
    Column("arguments", _json),
    Index("requests_by_key", "job_id", "idempotency_key"),
    Index("requests_by_status", "status"),
)
"""`result_file` names a DSSST1 frame under `state_dir`/results, for results that hold tensors; `arguments` is what a
restarted API process needs to take an unfinished request up again."""

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("checkpoint_id", String, primary_key=True),
    Column("checkpoint_type", String, nullable=False),
    Column("global_steps", Integer),
    Column("avg_loss", Float),
    Column("created_at", Float, nullable=False),
    Column("path", String, nullable=False),
    Column("size_bytes", BigInteger),
    Column("owner", String),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", String, primary_key=True),
    Column("sha256", String, nullable=False, unique=True),
    Column("user", String, nullable=False),
    Column("role", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
)
"""`sha256` of the token (32 random bytes, so that no salt is needed); the token itself is kept nowhere."""

usage = Table(
    "usage",
    metadata,
    Column("day", String, primary_key=True),
    Column("job_id", String, primary_key=True),
    Column("sub_job_id", String, primary_key=True),
    Column("meter", String, primary_key=True),
    Column("quantity", Float, nullable=False),
    Index("usage_by_job", "job_id"),
)
"""`day` is UTC, YYYY-MM-DD; `sub_job_id` is empty for what belongs to the whole job; quantities only ever grow."""

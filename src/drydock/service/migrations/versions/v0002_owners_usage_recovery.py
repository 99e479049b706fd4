"""Owners and tokens, placement, usage, and what a restarted API process needs to go on."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_json = sa.JSON().with_variant(sa.Text(), "postgresql")


def upgrade() -> None:
    for name, kind in (
        ("name", sa.String),
        ("owner", sa.String),
        ("owner_role", sa.String),
        ("hardware", sa.String),
        ("slots", sa.Integer),
        ("started_at", sa.Float),
        ("ended_at", sa.Float),
        ("creation_key", sa.String),
    ):
        op.add_column("jobs", sa.Column(name, kind))
    op.create_index("jobs_by_owner", "jobs", ["owner"])
    for name, kind in (("slots", sa.Integer), ("devices", _json), ("worker", _json), ("restarts", sa.Integer)):
        op.add_column("sub_jobs", sa.Column(name, kind))
    op.add_column("requests", sa.Column("arguments", _json))
    op.add_column("checkpoints", sa.Column("size_bytes", sa.BigInteger))
    op.add_column("checkpoints", sa.Column("owner", sa.String))
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.String, primary_key=True),
        sa.Column("sha256", sa.String, nullable=False, unique=True),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("revoked_at", sa.Float),
    )
    op.create_table(
        "usage",
        sa.Column("day", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("sub_job_id", sa.String, primary_key=True),
        sa.Column("meter", sa.String, primary_key=True),
        sa.Column("quantity", sa.Float, nullable=False),
    )
    op.create_index("usage_by_job", "usage", ["job_id"])

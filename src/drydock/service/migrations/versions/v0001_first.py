"""Jobs, sub-jobs, requests and checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_json = sa.JSON().with_variant(sa.Text(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("reason", sa.String),
        sa.Column("comment", sa.String),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("body", _json, nullable=False),
    )
    op.create_index("jobs_by_status", "jobs", ["status"])
    op.create_table(
        "sub_jobs",
        sa.Column("sub_job_id", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("job_type", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("config", _json, nullable=False),
    )
    op.create_index("sub_jobs_by_job", "sub_jobs", ["job_id"])
    op.create_table(
        "requests",
        sa.Column("request_id", sa.String, primary_key=True),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("idempotency_key", sa.String),
        sa.Column("body_sha256", sa.String),
        sa.Column("wants_tensors", sa.Integer, nullable=False),
        sa.Column("result", _json),
        sa.Column("result_file", sa.String),
        sa.Column("error", sa.String),
        sa.Column("error_type", sa.String),
        sa.Column("blame", sa.String),
    )
    op.create_index("requests_by_key", "requests", ["job_id", "idempotency_key"])
    op.create_index("requests_by_status", "requests", ["status"])
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String, primary_key=True),
        sa.Column("checkpoint_id", sa.String, primary_key=True),
        sa.Column("checkpoint_type", sa.String, nullable=False),
        sa.Column("global_steps", sa.Integer),
        sa.Column("avg_loss", sa.Float),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("path", sa.String, nullable=False),
    )

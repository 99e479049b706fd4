"""Alembic migrations of the service's database, one file a version of its schema."""

"""Run by Alembic for `store.py`, which hands over an open connection in a transaction of its own."""

from alembic import context

from drydock.service.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()

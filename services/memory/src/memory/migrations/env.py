"""Alembic environment: runs on the connection that ``memory.migrate`` hands over."""

from alembic import context

from memory import models

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=models.METADATA)
with context.begin_transaction():
    context.run_migrations()

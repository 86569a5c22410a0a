"""The migrations make what the models declare, and may be run at any time."""

import asyncio
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from memory import models
from memory.migrate import engine_url, migrate
from posthouse.embedded.postgres import PostgresServer
from tests.support.servers import fresh_database


def _different(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    found = compare_metadata(context, models.METADATA)
    # Indexes live in the migrations only; columns, types and keys must agree.
    return [d for d in found if "index" not in str(d[0]) and "constraint" not in str(d[0])]


async def test_models_and_migrations_agree(database: str) -> None:
    engine = create_async_engine(engine_url(database))
    async with engine.connect() as connection:
        assert await connection.run_sync(_different) == []
    await engine.dispose()


async def test_migrations_at_once_are_harmless(postgres_server: PostgresServer) -> None:
    async with fresh_database(postgres_server, template="template0") as dsn:
        await asyncio.gather(*(migrate(dsn) for _ in range(3)))
        await migrate(dsn)

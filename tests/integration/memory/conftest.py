"""One database for all direct tests, emptied before each, with the service's adapter on it."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from memory.adapters.postgres import PostgresDatabase
from memory.migrations import HEAD
from memory.settings import SESSION
from posthouse.embedded.postgres import PostgresServer
from tests.integration.memory.api import LONG_S, SHORT_S, Api
from tests.integration.memory.rows import Rows
from tests.support.servers import TEMPLATE, execute, run_now

SHARED = "memory_direct"


@pytest.fixture(scope="session")
def direct_dsn(migrated_server: PostgresServer) -> Iterator[str]:
    """A migrated database; making one for each test would take most of their time."""
    run_now(execute(migrated_server, f"CREATE DATABASE {SHARED} TEMPLATE {TEMPLATE}"))
    yield migrated_server.dsn_of(SHARED)
    run_now(execute(migrated_server, f"DROP DATABASE {SHARED} WITH (FORCE)"))


@pytest.fixture
async def rows(direct_dsn: str) -> AsyncIterator[Rows]:
    """What is in the tables: nothing at first."""
    connection = await asyncpg.connect(direct_dsn, server_settings=SESSION)
    tables = Rows(connection, direct_dsn)
    await tables.clear()
    yield tables
    await connection.close()


@pytest.fixture
async def postgres(direct_dsn: str, rows: Rows) -> AsyncIterator[PostgresDatabase]:
    """The adapter, connected; it starts no grace of its own."""
    adapter = PostgresDatabase(direct_dsn, size=8, lease_ttl_s=LONG_S)
    await adapter.start(HEAD)
    yield adapter
    await adapter.stop()


@pytest.fixture
def memory(postgres: PostgresDatabase) -> Api:
    """Calls of holders: their leases never run out by themselves."""
    return Api(postgres, LONG_S)


@pytest.fixture
def taker(postgres: PostgresDatabase) -> Api:
    """Calls after which nobody waits: no grace, each lease has run out at once, relay at once."""
    return Api(postgres, SHORT_S, relay_after_s=SHORT_S)

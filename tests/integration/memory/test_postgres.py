"""The adapter: what it refuses at its start, and when it asks for a grace."""

import asyncio

import asyncpg
import pytest

from memory.adapters.postgres import PostgresDatabase
from memory.migrations import HEAD
from posthouse.embedded.ports import free_port
from posthouse.embedded.postgres import PostgresServer
from posthouse.errors import (
    BadMessage,
    BadRequest,
    ConfigError,
    Drift,
    Fenced,
    PosthouseError,
    TransientError,
    Unavailable,
)
from tests.integration.memory.api import LONG_S
from tests.integration.memory.rows import Rows
from tests.support.wait import eventually


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("drop table alembic_version", "at no revision"),
        ("delete from alembic_version", "at no revision"),
        ("update alembic_version set version_num = '9999'", "at 9999"),
    ],
)
async def test_another_schema_is_drift(database: str, change: str, message: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute(change)
    await connection.close()
    adapter = PostgresDatabase(database, 2, LONG_S)
    with pytest.raises(Drift, match=message):
        await adapter.start(HEAD)
    await adapter.stop()


@pytest.mark.parametrize("dsn", ["postgresql://stranger@127.0.0.1:{port}/x", "no://x", "a://[x"])
async def test_a_dsn_that_will_never_work_is_a_configuration_error(
    postgres_server: PostgresServer, dsn: str
) -> None:
    adapter = PostgresDatabase(dsn.format(port=postgres_server.port), 2, LONG_S)
    with pytest.raises(ConfigError, match="postgres_dsn"):
        await adapter.start(HEAD)


@pytest.mark.parametrize("dsn", ["postgresql://postgres@127.0.0.1:{free}/x"])
async def test_a_server_that_is_not_there_is_unavailable(dsn: str) -> None:
    adapter = PostgresDatabase(dsn.format(free=free_port()), 2, LONG_S)
    with pytest.raises(Unavailable):
        await adapter.start(HEAD)
    with pytest.raises(Unavailable, match="not connected yet"):
        await adapter.ping()


async def test_a_database_that_is_not_there_yet_is_unavailable(
    postgres_server: PostgresServer,
) -> None:
    adapter = PostgresDatabase(postgres_server.dsn_of("not_there"), 2, LONG_S)
    with pytest.raises(Unavailable):
        await adapter.start(HEAD)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("PH001", Fenced),
        ("PH002", BadRequest),
        ("PH003", BadMessage),
        ("22P05", BadMessage),
        ("54000", BadMessage),
        ("40P01", TransientError),
        ("55P03", TransientError),
        ("57014", TransientError),
        ("57P01", Unavailable),
        ("53300", Unavailable),
        ("08006", Unavailable),
        ("23505", PosthouseError),
    ],
)
async def test_errors_are_told_apart_by_what_helps(
    postgres: PostgresDatabase, state: str, error: type[PosthouseError]
) -> None:
    with pytest.raises(error) as caught:
        await postgres.call("turn_v1.fail", state, "because")
    assert type(caught.value) is error


async def test_a_connection_that_breaks_is_replaced(postgres: PostgresDatabase, rows: Rows) -> None:
    waiting = asyncio.create_task(postgres.call("pg_sleep", 1.5))
    kill = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sl%'"
    await eventually(lambda: rows.connection.fetchval(kill))
    with pytest.raises(Unavailable, match=r"terminating connection|closed"):
        await waiting
    await postgres.ping()


async def test_a_statement_that_takes_too_long_is_given_up(postgres: PostgresDatabase) -> None:
    with pytest.raises(Unavailable, match="TimeoutError"):
        await postgres.call("pg_sleep", 10.0)
    await postgres.ping()


@pytest.mark.parametrize(("state", "asked"), [("57P01", True), ("55P03", True), ("PH002", False)])
async def test_after_a_failure_the_next_call_asks_for_a_grace_first(
    postgres: PostgresDatabase, rows: Rows, state: str, asked: bool
) -> None:
    with pytest.raises(PosthouseError):
        await postgres.call("turn_v1.fail", state, "because")
    assert await rows.in_grace() is False
    await postgres.ping()
    assert await rows.in_grace() is asked


async def test_a_grace_is_not_asked_for_again_and_again(
    postgres: PostgresDatabase, rows: Rows
) -> None:
    postgres.grace_due(restart=False)
    await postgres.ping()
    await rows.connection.execute("update grace set until = '-infinity'")
    postgres.grace_due(restart=False)
    await postgres.ping()
    assert not await rows.in_grace()
    postgres.grace_due(restart=True)
    await postgres.ping()
    assert await rows.in_grace()

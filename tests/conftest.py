"""Fixtures for all tests: real servers. One that is missing fails the test, it never skips it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from posthouse.bootstrap import bootstrap
from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from tests.support.servers import (
    Nats,
    create_template,
    fresh_database,
    postgres_folder,
    run_now,
)


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A NATS server that all tests share: use names of your own on it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    run_now(server.start())
    yield server.url
    run_now(server.stop())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A Postgres server that all tests share; for a database of your own take ``database``."""
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        run_now(server.start())
        yield server
        run_now(server.stop())


@pytest.fixture(scope="session")
def migrated_server(postgres_server: PostgresServer) -> PostgresServer:
    """The shared server, with the migrated template database."""
    run_now(create_template(postgres_server))
    return postgres_server


@pytest.fixture
async def database(migrated_server: PostgresServer) -> AsyncIterator[str]:
    """The DSN of a migrated database that only this test uses."""
    async with fresh_database(migrated_server) as dsn:
        yield dsn


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A NATS server of this test alone, to be killed (``crash``) and started again."""
    server = NatsServer(tmp_path / "nats")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def own_postgres() -> AsyncIterator[PostgresServer]:
    """A Postgres server of this test alone, with an empty database; starts in about 1.5 s."""
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        await server.start()
        yield server
        await server.stop()


@pytest.fixture
async def nats(own_nats: NatsServer) -> AsyncIterator[Nats]:
    """An empty NATS server of this test alone, with connections."""
    server = Nats(own_nats)
    yield server
    await server.close()


@pytest.fixture
async def bus(nats: Nats) -> Nats:
    """As ``nats``, with all streams, consumers and buckets; one bot, ``web``, delivers."""
    js: JetStreamContext = await nats.jetstream()
    await bootstrap(js, ["web"])
    return nats

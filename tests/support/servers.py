"""Real servers for tests: what the fixtures in ``conftest.py`` hand out."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg
from nats.aio.client import Client
from nats.js import JetStreamContext

from posthouse import bus
from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from posthouse.embedded.process import ChildProcess

TEMPLATE = "posthouse_template"
MIGRATE_TIMEOUT_S = 60.0
CRASH_TIMEOUT_S = 10.0

T = TypeVar("T")


class Nats:
    """A NATS server of one test and the connections the test opens to it."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self._clients: list[Client] = []

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.server.url

    async def connect(self, name: str = "test") -> Client:
        """A connection, closed at the end of the test."""
        client = await bus.connect(self.url, name)
        self._clients.append(client)
        return client

    async def jetstream(self) -> JetStreamContext:
        """JetStream on a connection of its own."""
        return (await self.connect()).jetstream()

    async def close(self) -> None:
        """Close what ``connect`` opened."""
        for client in self._clients:
            await bus.close(client)


async def crash(server: ChildProcess) -> None:
    """kill -9, and wait until the process is gone. ``await server.start()`` brings it back."""
    server.kill()
    assert await server.ended(CRASH_TIMEOUT_S)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a loop of its own, for fixtures of a whole session."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def migrate(dsn: str) -> None:
    """Bring a database into the current shape, with the program that does it in production."""
    done = subprocess.run(
        [sys.executable, "-m", "memory", "migrate"],
        env={**os.environ, "POSTHOUSE_POSTGRES_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=MIGRATE_TIMEOUT_S,
    )
    assert done.returncode == 0, f"memory migrate failed:\n{done.stdout}{done.stderr}"


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A folder for a Postgres of the tests, outside pytest's own.

    Every pytest that starts closes its shared folder to other accounts; a Postgres under another
    account then dies at its next checkpoint (seen).
    """
    with tempfile.TemporaryDirectory(prefix="posthouse-postgres-") as folder:
        yield Path(folder)


async def execute(server: PostgresServer, statement: str) -> None:
    """Run one statement beside all test databases."""
    connection = await asyncpg.connect(server.dsn_of("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def create_template(server: PostgresServer) -> None:
    """Make the migrated database that ``fresh_database`` copies."""
    await execute(server, f"CREATE DATABASE {TEMPLATE}")
    await asyncio.to_thread(migrate, server.dsn_of(TEMPLATE))


@asynccontextmanager
async def fresh_database(server: PostgresServer, template: str = TEMPLATE) -> AsyncIterator[str]:
    """The DSN of a new copy of the template, dropped in the end."""
    name = f"test_{uuid4().hex[:12]}"
    await execute(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield server.dsn_of(name)
    finally:
        await execute(server, f"DROP DATABASE {name} WITH (FORCE)")

"""Postgres by asyncpg: one pooled statement per call, errors told apart by what helps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import structlog
from asyncpg.pool import PoolConnectionProxy

from memory.settings import (
    COMMAND_TIMEOUT_S,
    HEARTBEAT_CONNECTIONS,
    LOCK_TIMEOUT_MS,
    POOL_PATIENCE_S,
)
from posthouse.errors import (
    BadMessage,
    BadRequest,
    Busy,
    Drift,
    Fenced,
    PosthouseError,
    TransientError,
    Unavailable,
)
from posthouse.rpc import Raw

log = structlog.get_logger(__name__)

FENCED = "PH001"
BAD_REQUEST = "PH002"
# Serialization failure, deadlock, lock timeout, statement timeout: the same call may succeed.
REPEATABLE = frozenset({"40001", "40P01", "55P03", "57014"})
# Connection lost, server shutting down, too many connections.
LOST = ("08", "53", "57P")
DATA_ERROR = "22"

Connection = PoolConnectionProxy[asyncpg.Record]


class PostgresDatabase:
    """Two pools: one for turns, a small one for renewals (R11).

    ``on_outage`` is called when Postgres could not be reached, before the error goes on.
    """

    def __init__(self, dsn: str, size: int) -> None:
        self._dsn = dsn
        self._size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._beats: asyncpg.Pool[asyncpg.Record] | None = None
        self.outage = asyncio.Event()

    async def start(self, revision: str) -> None:
        """Connect and compare the schema. Raises Unavailable; Drift if it is not ``revision``."""
        try:
            async with asyncio.timeout(10):
                self._pool = await self._create(self._size)
                self._beats = await self._create(HEARTBEAT_CONNECTIONS)
                found = await self._pool.fetchval("select version_num from alembic_version")
        except asyncpg.UndefinedTableError as error:
            raise Drift("the database has no schema; run `python -m memory migrate`") from error
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            await self.stop()
            raise Unavailable(f"Postgres does not answer: {type(error).__name__}") from error
        if found != revision:
            raise Drift(
                f"the database is at {found}, this service needs {revision};"
                " run `python -m memory migrate`"
            )

    async def _create(self, size: int) -> "asyncpg.Pool[asyncpg.Record]":
        return await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=size,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings={"lock_timeout": str(LOCK_TIMEOUT_MS), "application_name": "memory"},
        )

    async def stop(self) -> None:
        """Close the pools; statements under way get two seconds."""
        for pool in (self._pool, self._beats):
            if pool is not None:
                try:
                    await asyncio.wait_for(pool.close(), COMMAND_TIMEOUT_S)
                except TimeoutError:
                    pool.terminate()

    async def ping(self) -> None:
        """Raises Unavailable or Busy when Postgres cannot be used."""
        await self.call("pg_backend_pid")

    async def call(self, function: str, *arguments: object) -> Raw:
        """Run a SQL function on the main pool.

        Raises Busy (no free connection), Unavailable, TransientError, Fenced, BadRequest, or
        BadMessage for data that Postgres cannot store.
        """
        return await self._run(self._pool, function, arguments)

    async def beat(self, *arguments: object) -> Raw:
        """Run ``turn_v1.heartbeat`` on the reserved connections."""
        return await self._run(self._beats, "turn_v1.heartbeat", arguments)

    async def _run(
        self,
        pool: "asyncpg.Pool[asyncpg.Record] | None",
        function: str,
        arguments: tuple[object, ...],
    ) -> Raw:
        if pool is None:
            raise Unavailable("the database is not connected yet")
        places = ",".join(f"${n}" for n in range(1, len(arguments) + 1))
        try:
            async with _connection(pool) as connection:
                return Raw(
                    str(await connection.fetchval(f"select {function}({places})", *arguments))
                )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> PosthouseError:
        state = getattr(error, "sqlstate", None) or ""
        if state == FENCED:
            return Fenced(str(error))
        if state == BAD_REQUEST:
            return BadRequest(str(error))
        if state in REPEATABLE:
            return TransientError(f"Postgres: {type(error).__name__}")
        if state.startswith(DATA_ERROR):
            return BadMessage(f"Postgres cannot store this: {type(error).__name__}", reason="data")
        if not state or state.startswith(LOST):
            self.outage.set()
            return Unavailable(f"Postgres does not answer: {type(error).__name__}")
        log.error("postgres.failed", sqlstate=state, error=type(error).__name__)
        return PosthouseError(f"Postgres: {type(error).__name__}", sqlstate=state)


@asynccontextmanager
async def _connection(pool: "asyncpg.Pool[asyncpg.Record]") -> AsyncIterator[Connection]:
    try:
        connection = await pool.acquire(timeout=POOL_PATIENCE_S)
    except TimeoutError as error:
        raise Busy("no free connection to Postgres") from error
    try:
        yield connection
    finally:
        await pool.release(connection)

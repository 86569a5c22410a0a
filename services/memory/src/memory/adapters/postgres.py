"""Postgres by asyncpg: one pooled statement per call, errors told apart by what helps."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import asyncpg
import structlog

from memory.settings import (
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    HEARTBEAT_CONNECTIONS,
    POOL_PATIENCE_S,
    SESSION,
)
from posthouse.errors import (
    BadMessage,
    BadRequest,
    Busy,
    ConfigError,
    Drift,
    Fenced,
    PosthouseError,
    TransientError,
    Unavailable,
)
from posthouse.rpc import Raw

if TYPE_CHECKING:  # generic for type checkers only
    from asyncpg.pool import PoolConnectionProxy

    Pool = asyncpg.Pool[asyncpg.Record]
    Connection = PoolConnectionProxy[asyncpg.Record]

log = structlog.get_logger(__name__)

FENCED = "PH001"
BAD_REQUEST = "PH002"
BAD_MESSAGE = "PH003"
# Serialization failure, deadlock, lock timeout, statement timeout: the same call may succeed.
REPEATABLE = frozenset({"40001", "40P01", "55P03", "57014"})
# Connection lost, server shutting down, too many connections.
LOST = ("08", "53", "57P")
# Not a text of Postgres (NUL); beyond a limit of its own.
DATA_ERRORS = ("22", "54")
# A wrong password, an unknown role: no patience helps.
REFUSED = "28"
FAILURES = (
    *(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError),
    *(OSError, TimeoutError),
)


class PostgresDatabase:
    """Two pools: one for turns, a small one for renewals, which a full pool must not cost (R11)."""

    def __init__(self, dsn: str, size: int, lease_ttl_s: float) -> None:
        self._dsn = dsn
        self._size = size
        self._ttl_s = lease_ttl_s
        self._pool: Pool | None = None
        self._beats: Pool | None = None
        self._grace_due = False
        self._after_restart = False
        self._grace_asked_at = -math.inf
        self._asking_grace = asyncio.Lock()

    async def start(self, revision: str) -> None:
        """Connect and compare the schema.

        Raises Unavailable, ConfigError (Postgres will never let us in), and Drift if the schema
        is not at ``revision``.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._pool = await self._create(self._size)
                self._beats = await self._create(HEARTBEAT_CONNECTIONS)
                found = await self._pool.fetchval("select version_num from alembic_version")
        except asyncpg.UndefinedTableError:
            found = None
        except (*FAILURES, ValueError) as error:
            await self.stop()
            raise _start_error(error) from error
        if found != revision:
            raise Drift(
                f"the database is at {found or 'no revision'}, this service needs {revision};"
                " run `python -m memory migrate`"
            )

    async def _create(self, size: int) -> "Pool":
        return await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=size,
            reset=_nothing,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings=SESSION,
        )

    async def stop(self) -> None:
        """Close the pools; statements under way get two seconds."""
        for pool in (self._pool, self._beats):
            if pool is not None:
                try:
                    await asyncio.wait_for(pool.close(), COMMAND_TIMEOUT_S)
                except (TimeoutError, asyncpg.InterfaceError):
                    pool.terminate()

    def grace_due(self, restart: bool) -> None:
        """Holders may have been unable to renew: the next call starts a grace first (R11)."""
        # Postgres gives one only now and then: an overload need not ask for each refusal.
        if restart or time.monotonic() > self._grace_asked_at + self._ttl_s:
            self._grace_due = True
            self._after_restart |= restart

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

    async def _run(self, pool: "Pool | None", function: str, arguments: tuple[object, ...]) -> Raw:
        if pool is None:
            raise Unavailable("the database is not connected yet")
        places = ",".join(f"${n}" for n in range(1, len(arguments) + 1))
        try:
            async with _connection(pool) as connection:
                if self._grace_due:
                    await self._ask_grace(connection)
                return Raw(
                    str(await connection.fetchval(f"select {function}({places})", *arguments))
                )
        except Busy:
            self.grace_due(restart=False)
            raise
        except FAILURES as error:
            raise self._translated(error) from error

    async def _ask_grace(self, connection: "Connection") -> None:
        # Others wait here: a take-over must not slip through before the grace is written.
        async with asyncio.timeout(COMMAND_TIMEOUT_S), self._asking_grace:
            if not self._grace_due:
                return
            restart = self._after_restart
            await connection.execute("select turn_v1.start_grace($1, $2)", self._ttl_s, restart)
            self._grace_due = self._after_restart = False
            self._grace_asked_at = time.monotonic()
            log.info("grace.asked", ttl_s=self._ttl_s, restart=restart)

    def _translated(self, error: Exception) -> PosthouseError:
        state = getattr(error, "sqlstate", None) or ""
        if state == FENCED:
            return Fenced(str(error))
        if state == BAD_REQUEST:
            return BadRequest(str(error))
        if state == BAD_MESSAGE:
            return BadMessage(str(error), reason="too_large")
        if state.startswith(DATA_ERRORS):
            return BadMessage(f"Postgres cannot store this: {type(error).__name__}", reason="data")
        if state in REPEATABLE:
            self.grace_due(restart=False)
            return TransientError(f"Postgres: {type(error).__name__}")
        if _is_lost(error):
            self.grace_due(restart=False)
            return Unavailable(f"Postgres does not answer: {type(error).__name__}: {error}")
        log.error("postgres.failed", sqlstate=state, error=type(error).__name__)
        return PosthouseError(f"Postgres: {type(error).__name__}", sqlstate=state)


def _is_lost(error: Exception) -> bool:
    state = getattr(error, "sqlstate", None) or ""
    return not state or state.startswith(LOST)


def _start_error(error: Exception) -> PosthouseError:
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith(REFUSED):
        return ConfigError(f"postgres_dsn: {error}")
    if isinstance(error, ValueError):  # its text may hold the password
        return ConfigError(f"postgres_dsn cannot be read: {type(error).__name__}")
    return Unavailable(f"Postgres does not answer: {type(error).__name__}")


async def _nothing(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    # Nothing to reset, since each call is one statement: saves a quarter of a short call
    # (measured).
    pass


@asynccontextmanager
async def _connection(pool: "Pool") -> AsyncIterator["Connection"]:
    try:
        connection = await pool.acquire(timeout=POOL_PATIENCE_S)
    except TimeoutError as error:
        raise Busy("no free connection to Postgres") from error
    try:
        yield connection
    except FAILURES as error:
        if _is_lost(error):
            # Asyncpg may think that it is good, and hand it out again (seen after a kill -9),
            # or have given it up already.
            with suppress(asyncpg.InterfaceError):
                connection.terminate()
        raise
    finally:
        # After a timeout the release waits until Postgres has cancelled the statement.
        await pool.release(connection, timeout=POOL_PATIENCE_S)

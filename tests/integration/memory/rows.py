"""The tables behind the functions: to look at them, and to let time pass."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg

from tests.integration.memory.requests import KEY

TABLES = ("conversation", "mailbox", "step", "outbound", "call", "history")


class Rows:
    """Reads and changes rows over a connection of its own."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", dsn: str) -> None:
        self.connection = connection
        self.dsn = dsn

    async def clear(self) -> None:
        """Empty the tables; no grace, first generation."""
        deletes = "".join(f"delete from {table};" for table in TABLES)
        await self.connection.execute(
            f"{deletes} update era set generation = 1; update grace set until = '-infinity'"
        )

    async def expire(self, key: str = KEY, seconds: float = 60) -> None:
        """The lease of a conversation ran out some time ago."""
        await self.connection.execute(
            "update conversation set lease_until = clock_timestamp() - make_interval(secs => $2)"
            " where key = $1",
            *(key, seconds),
        )

    async def expire_call(self, call_id: str) -> None:
        """The lease of a call ran out."""
        await self.connection.execute(
            "update call set lease_until = clock_timestamp() - interval '60 s' where call_id = $1",
            call_id,
        )

    async def start_grace(self, seconds: float, restart: bool = False) -> None:
        """As the service does after an outage, or a start."""
        await self.connection.execute("select turn_v1.start_grace($1, $2)", seconds, restart)

    async def grace(self) -> datetime:
        """The end of the grace that was started last."""
        found = await self.connection.fetchval("select until from grace")
        assert isinstance(found, datetime)
        return found

    async def in_grace(self) -> bool:
        """Whether the grace that was started last still lasts."""
        return bool(await self.connection.fetchval("select until > clock_timestamp() from grace"))

    @asynccontextmanager
    async def another(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """A further connection to the same database, for what runs beside."""
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()

    async def conversation(self, key: str = KEY) -> dict[str, Any]:
        """The row of a conversation."""
        row = await self.connection.fetchrow("select * from conversation where key = $1", key)
        assert row is not None
        return dict(row)

    async def message(self, seq: int, key: str = KEY) -> dict[str, Any]:
        """The row of a mailbox message."""
        row = await self.connection.fetchrow(
            "select * from mailbox where key = $1 and seq = $2", key, seq
        )
        assert row is not None
        return dict(row)

    async def call(self, call_id: str) -> dict[str, Any]:
        """The row of a call."""
        row = await self.connection.fetchrow("select * from call where call_id = $1", call_id)
        assert row is not None
        return dict(row)

    async def states(self, key: str = KEY) -> dict[int, str]:
        """States of all messages of a conversation, by seq."""
        found = await self.connection.fetch(
            "select seq, state from mailbox where key = $1 order by seq", key
        )
        return {row["seq"]: row["state"] for row in found}

    async def sent(self, key: str = KEY) -> list[tuple[int, str]]:
        """Number and content of all outbound messages of a conversation, in order."""
        found = await self.connection.fetch(
            "select seq, body->>'content' as content from outbound where key = $1"
            " order by generation, seq",
            key,
        )
        return [(row["seq"], row["content"]) for row in found]

    async def snapshot(self) -> dict[str, list[str]]:
        """All rows of all tables, to be compared."""
        return {
            table: [
                row[0]
                for row in await self.connection.fetch(
                    f"select r::text from {table} r order by r::text"
                )
            ]
            for table in TABLES
        }

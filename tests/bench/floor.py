"""The least that a durable turn can cost: store the question, two rows at once, store the answer.

Bare nats-py and asyncpg, without anything around them; no model is asked.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from nats.js import JetStreamContext

from tests.bench.system import Servers

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]

BODY = b'{"content": "%s"}' % (b"x" * 400)
TABLE = "create table if not exists floor (id bigserial primary key, chat text, body jsonb)"
INSERT = "insert into floor (chat, body) values ($1, $2)"


class Floor:
    """Turns at the least cost."""

    def __init__(self, js: JetStreamContext, pool: "Pool") -> None:
        self._js = js
        self._pool = pool

    async def talk(self, name: str, turns: int, conversations: int = 1) -> list[float]:
        """As ``People.talk``."""

        async def one(number: int) -> list[float]:
            chat = f"{name}-{number}"
            mine = turns // conversations + (number < turns % conversations)
            return [await self._turn(chat) for _ in range(mine)]

        each = await asyncio.gather(*(one(number) for number in range(conversations)))
        return [seconds for latencies in each for seconds in latencies]

    async def _turn(self, chat: str) -> float:
        started = time.perf_counter()
        await self._js.publish(f"inbound.im.floor.{chat}", BODY)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(INSERT, chat, BODY.decode())
            await connection.execute(INSERT, chat, BODY.decode())
        await self._js.publish(f"outbound.im.floor.{chat}", BODY)
        return time.perf_counter() - started


@asynccontextmanager
async def floor(below: Servers) -> AsyncIterator[Floor]:
    """Connections of its own, and its table."""
    async with asyncpg.create_pool(below.dsn, min_size=1, max_size=8) as pool:
        await pool.execute(TABLE)
        yield Floor(await below.nats.jetstream(), pool)

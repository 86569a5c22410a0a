"""People who write, wait for the answer, and write again."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import orjson
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from posthouse import subjects
from posthouse.address import Address
from tests.support.servers import Nats

ANSWER_TIMEOUT_S = 30.0


class People:
    """Conversations with the agent; answers are seen as the gateway would see them."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._ids = map(str, count(1))
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def on_answer(self, message: Msg) -> None:
        """An outbound message was stored."""
        body = orjson.loads(message.data)
        assert "error" not in body, body["error"]
        for id_ in body["in_reply_to"]:
            self._waiting.pop(id_).set_result(None)

    async def turn(self, conversation: Address) -> float:
        """Say something and wait for the answer; seconds from the first to the last."""
        id_ = next(self._ids)
        answered = self._waiting[id_] = asyncio.get_running_loop().create_future()
        body = orjson.dumps({"id": id_, "content": f"Question {id_}: what is six times seven?"})
        started = time.perf_counter()
        await self._js.publish(subjects.inbound(conversation), body)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await answered
        return time.perf_counter() - started

    async def talk(self, name: str, turns: int, conversations: int = 1) -> list[float]:
        """``turns`` turns over several conversations at once, in each one after the other."""

        async def one(number: int) -> list[float]:
            chat = Address.im("cli", f"{name}-{number}")
            mine = turns // conversations + (number < turns % conversations)
            return [await self.turn(chat) for _ in range(mine)]

        each = await asyncio.gather(*(one(number) for number in range(conversations)))
        return [seconds for latencies in each for seconds in latencies]


@asynccontextmanager
async def people(nats: Nats) -> AsyncIterator[People]:
    """People on a connection of their own."""
    connection = await nats.connect("people")
    crowd = People(connection.jetstream())
    subscription = await connection.subscribe(subjects.OUTBOUND_ALL, cb=crowd.on_answer)
    yield crowd
    await subscription.unsubscribe()

"""A service that stops answers every request that reached it."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from posthouse import bus
from posthouse.messages import Wire
from posthouse.rpc import RpcClient, RpcServer
from tests.support.servers import Nats, crash
from tests.support.wait import eventually

if TYPE_CHECKING:
    from faststream.nats import NatsBroker

SUBJECT = "test.echo"
ASKING = 8


class Echo(Wire):
    """A request, and its result."""

    n: int


async def serve(url: str) -> "NatsBroker":
    """A replica of a service that takes a moment for each request."""

    async def echo(request: Echo) -> Echo:
        await asyncio.sleep(0.02)
        return Echo(n=request.n)

    server, broker = RpcServer("echoes"), bus.build_broker(url, "echo")
    server.add(SUBJECT, echo)
    server.attach(broker)
    await bus.start(broker)
    return broker


async def test_a_rolling_restart_loses_no_request(nats: Nats) -> None:
    first, second = await serve(nats.url), await serve(nats.url)
    over = asyncio.Event()
    answered = 0

    async def ask(client: RpcClient) -> None:
        nonlocal answered
        while not over.is_set():
            # One that is lost raises Unavailable, after three seconds.
            await client.call(SUBJECT, Echo(n=answered), Echo)
            answered += 1

    asking = [asyncio.create_task(ask(RpcClient(await nats.connect()))) for _ in range(ASKING)]
    await eventually(lambda: answered > 5 * ASKING)
    await bus.stop(first)
    before = answered
    await eventually(lambda: answered > before + 5 * ASKING)
    over.set()
    await asyncio.gather(*asking)
    await bus.stop(second)


async def test_the_last_replica_answers_what_it_took(nats: Nats) -> None:
    broker = await serve(nats.url)
    client = RpcClient(await nats.connect())
    asked = [asyncio.create_task(client.call(SUBJECT, Echo(n=n), Echo)) for n in range(ASKING)]
    await asyncio.sleep(0)
    await client._connection.flush()
    await bus.stop(broker)
    assert [result.n for result in await asyncio.gather(*asked)] == list(range(ASKING))


@pytest.mark.parametrize("started", [True, False])
async def test_it_stops_without_nats(nats: Nats, started: bool) -> None:
    broker = await serve(nats.url) if started else bus.build_broker(nats.url, "echo")
    await crash(nats.server)
    async with asyncio.timeout(15):
        await bus.stop(broker)
    await nats.server.start()

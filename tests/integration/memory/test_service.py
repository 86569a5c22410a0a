"""The memory service as two processes, on real NATS and Postgres: what it answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio
from nats.aio.client import Client

from posthouse import bus, subjects, turns
from posthouse.embedded.postgres import PostgresServer
from posthouse.errors import BadMessage, BadRequest, Fenced
from tests.integration.memory.remote import Remote
from tests.integration.memory.requests import letter
from tests.support.processes import ServiceProcess
from tests.support.servers import fresh_database

# Starting the service takes longer than all these tests: they share two replicas.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(
    tmp_path_factory: pytest.TempPathFactory, nats_url: str, migrated_server: PostgresServer
) -> AsyncIterator[str]:
    """Two replicas of the service; where to reach them."""
    folder: Path = tmp_path_factory.mktemp("memory")
    async with fresh_database(migrated_server) as dsn:
        environment = {
            "POSTHOUSE_NATS_URL": nats_url,
            "POSTHOUSE_POSTGRES_DSN": dsn,
            "POSTHOUSE_MEMORY__WAITING_LIMIT": "100",
            "POSTHOUSE_MEMORY__POOL_SIZE": "8",
        }
        services = [ServiceProcess("memory", environment, folder) for _ in range(2)]
        await asyncio.gather(*(service.start() for service in services))
        yield nats_url
        codes = await asyncio.gather(*(service.stop() for service in services))
        assert codes == [0, 0]


@pytest_asyncio.fixture(loop_scope="module")
async def client(replicas: str) -> AsyncIterator[Client]:
    """A connection of its own."""
    connection = await bus.connect(replicas, "test")
    yield connection
    await connection.close()


@pytest.fixture
def remote(client: Client) -> Remote:
    """A worker, in a conversation that only this test uses."""
    return Remote(client, f"im.cli.{uuid4().hex}")


async def test_a_turn_from_open_to_commit(remote: Remote) -> None:
    lease = await remote.lease(letter(1))
    begun = await remote.begin(lease.epoch, 1)
    assert [m.body.content for m in begun.messages] == ["message 1"]
    await remote.record(lease.epoch, 1)
    assert (await remote.beat(lease.epoch)).lost == []
    done = await remote.commit(lease.epoch, 1)
    assert done.freed
    assert [o.body.seq for o in done.unpublished] == [1]


async def test_a_stale_epoch_is_fenced(remote: Remote) -> None:
    lease = await remote.lease(letter(1))
    with pytest.raises(Fenced):
        await remote.begin(lease.epoch + 1, 1)


async def test_a_bad_request_says_why(remote: Remote) -> None:
    await remote.lease(letter(1))
    with pytest.raises(BadRequest, match="another message"):
        await remote.open(letter(1, source="other"))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (letter(2, content="a\0b"), "data"),
        (letter(2, source="a\0b"), "data"),
        (letter(2, content="x" * 900_000), "too_large"),
        (letter(2**70), "data"),
    ],
    ids=["nul", "nul-in-id", "large", "position"],
)
async def test_what_cannot_be_stored_is_a_bad_message(
    remote: Remote, sent: turns.Letter, reason: str
) -> None:
    with pytest.raises(BadMessage) as caught:
        await remote.open(sent)
    assert caught.value.details["reason"] == reason


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"not json",
        b'{"key":"k"}',
        b'{"key":"\\ud800","epoch":1}',
        b'{"key":"' + b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=["empty", "list", "text", "fields", "surrogate", "deep", "bytes"],
)
@pytest.mark.parametrize("verb", ["open", "release"])
async def test_what_is_no_request_is_a_bad_request(client: Client, verb: str, body: bytes) -> None:
    reply = await client.request(subjects.memory("turn", verb), body, timeout=3)
    assert orjson.loads(reply.data)["error"]["code"] == "bad_request"


async def test_half_a_surrogate_in_a_message_is_a_bad_request(client: Client) -> None:
    request = turns.OpenRequest(key="k", letter=letter(1, content="HERE"), worker="w1")
    body = request.to_wire().replace(b"HERE", b"\\ud83d")
    reply = await client.request(subjects.memory("turn", "open"), body, timeout=3)
    assert orjson.loads(reply.data)["error"]["code"] == "bad_request"


async def test_of_many_opens_at_once_exactly_one_takes_the_lease(replicas: str) -> None:
    clients = [await bus.connect(replicas, f"w{n}") for n in range(8)]
    workers = [Remote(client, f"im.cli.{uuid4().hex}") for client in clients[:1]]
    workers += [Remote(client, workers[0].key) for client in clients[1:]]
    results = await asyncio.gather(
        *(w.open(letter(8 * n + i), f"w{n}") for n, w in enumerate(workers) for i in range(8))
    )
    states = [result.state for result in results]
    assert sorted(states) == ["busy"] * 63 + ["opened"]
    for client in clients:
        await client.close()

"""The memory service as a process, on real NATS and Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from posthouse import subjects, turns
from posthouse.embedded.postgres import PostgresServer
from posthouse.errors import BadMessage, BadRequest, Busy, Fenced, TransientError, Unavailable
from tests.integration.memory.remote import Remote
from tests.integration.memory.requests import KEY, letter
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats, crash, migrate
from tests.support.wait import eventually

Starter = Callable[..., ServiceProcess]


@pytest.fixture
async def process(tmp_path: Path, nats: Nats) -> AsyncIterator[Starter]:
    """Makes memory services on a database; they are stopped at the end."""
    made: list[ServiceProcess] = []

    def make(dsn: str, **settings: object) -> ServiceProcess:
        environment = {"POSTHOUSE_NATS_URL": nats.url, "POSTHOUSE_POSTGRES_DSN": dsn}
        environment |= {f"POSTHOUSE_MEMORY__{k.upper()}": str(v) for k, v in settings.items()}
        made.append(ServiceProcess("memory", environment, tmp_path))
        return made[-1]

    yield make
    for service in made:
        await service.stop()


@pytest.fixture
async def service(process: Starter, database: str) -> ServiceProcess:
    """One running service."""
    return await process(database).start()


@pytest.fixture
async def remote(nats: Nats) -> Remote:
    """A worker's connection."""
    return Remote(await nats.connect())


@pytest.fixture
async def own_database(own_postgres: PostgresServer) -> PostgresServer:
    """A migrated Postgres of this test alone, to be killed."""
    await asyncio.to_thread(migrate, own_postgres.dsn)
    return own_postgres


async def _checks(service: ServiceProcess) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=5) as http:
        answer = await http.get(f"{service.health_url}/readyz")
    return {"status": answer.status_code, **answer.json()["checks"]}


async def _answers(remote: Remote) -> bool:
    try:
        await remote.beat()
    except TransientError:
        return False
    return True


async def test_a_turn_from_open_to_commit(service: ServiceProcess, remote: Remote) -> None:
    lease = await remote.lease(letter(1))
    begun = await remote.begin(lease.epoch, 1)
    assert [m.body.content for m in begun.messages] == ["message 1"]
    await remote.record(lease.epoch, 1)
    done = await remote.commit(lease.epoch, 1)
    assert done.freed
    assert [o.body.seq for o in done.unpublished] == [1]


async def test_refusals_come_typed(service: ServiceProcess, remote: Remote) -> None:
    lease = await remote.lease(letter(1))
    with pytest.raises(Fenced):
        await remote.begin(lease.epoch + 1, 1)
    with pytest.raises(BadRequest, match="another message"):
        await remote.open(letter(1, source="other"))
    with pytest.raises(BadMessage) as caught:
        await remote.open(letter(2, content="a\0b"))
    assert caught.value.details["reason"] == "data"
    with pytest.raises(BadMessage) as caught:
        await remote.open(letter(2, content="x" * 900_000))
    assert caught.value.details["reason"] == "too_large"
    with pytest.raises(BadMessage):
        await remote.open(letter(2**70))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"not json",
        b'{"key":"k"}',
        b'{"key":"k","worker":"w","letter":{"position":{"generation":1,"seq":"x"},"source_id":"s"}}',
        b'{"key":"\\ud800","epoch":1}',
        b'{"key":"' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("verb", ["open", "release"])
async def test_what_is_no_request_is_a_bad_request(
    service: ServiceProcess, nats: Nats, verb: str, body: bytes
) -> None:
    client = await nats.connect()
    reply = await client.request(subjects.memory("turn", verb), body, timeout=3)
    answer = orjson.loads(reply.data)
    assert answer["error"]["code"] == "bad_request"


async def test_a_lone_surrogate_in_a_message_is_refused(
    service: ServiceProcess, nats: Nats
) -> None:
    request = turns.OpenRequest(key=KEY, letter=letter(1, content="HERE"), worker="w1")
    body = request.to_wire().replace(b"HERE", b"\\ud83d")
    client = await nats.connect()
    reply = await client.request(subjects.memory("turn", "open"), body, timeout=3)
    assert orjson.loads(reply.data)["error"]["code"] == "bad_request"


async def test_of_many_opens_at_once_exactly_one_takes_the_lease(
    service: ServiceProcess, process: Starter, database: str, nats: Nats
) -> None:
    await process(database).start()
    workers = [Remote(await nats.connect(f"w{n}")) for n in range(8)]
    results = await asyncio.gather(
        *(w.open(letter(8 * n + i + 1), f"w{n}") for n, w in enumerate(workers) for i in range(8)),
        return_exceptions=True,
    )
    # On a small machine some may find no free connection, and would be asked again.
    answers = [r for r in results if not isinstance(r, Busy)]
    states = [r.state if isinstance(r, turns.OpenResult) else r for r in answers]
    assert states.count("opened") == 1
    assert set(states) == {"opened", "busy"}


async def test_a_full_pool_is_busy_at_once_and_costs_no_renewal(
    process: Starter, database: str, remote: Remote
) -> None:
    await process(database, pool_size=2).start()
    lease = await remote.lease(letter(1))
    blocker = await asyncpg.connect(database)
    async with blocker.transaction():
        await blocker.execute("select 1 from conversation for update")
        opens = [asyncio.create_task(remote.open(letter(n))) for n in range(2, 12)]
        other = await blocker.fetchval("select count(*) from conversation where key = 'other'")
        assert other == 0
        refused = [r for r in await asyncio.gather(*opens, return_exceptions=True)]
        assert await remote.beat(other=1)
    await blocker.close()
    assert sum(isinstance(r, Busy) for r in refused) >= 8
    assert all(isinstance(r, TransientError) for r in refused)
    assert (await remote.beat(**{KEY: lease.epoch})).lost == []
    # R11: others could not be heard either, so nobody takes over for a while.
    assert (await remote.beat()).grace_s > 0


async def test_readyz_says_what_is_wrong(service: ServiceProcess, nats: Nats) -> None:
    assert await _checks(service) == {"status": 200, "postgres": "ok", "nats": "ok"}
    await crash(nats.server)

    async def told() -> bool:
        checks = await _checks(service)
        assert checks["status"] == 503
        assert checks["postgres"] == "ok"
        return "NATS" in checks["nats"] or "no answer" in checks["nats"]

    await eventually(told)


async def test_it_waits_for_postgres(
    process: Starter, own_database: PostgresServer, remote: Remote
) -> None:
    await crash(own_database)
    service = process(own_database.dsn)
    await service.spawn()

    async def told() -> bool:
        return (await _checks(service))["postgres"] == "the database is not connected yet"

    await eventually(_tolerant(told))
    await own_database.start()
    await eventually(lambda: _answers(remote))
    assert (await _checks(service))["status"] == 200


def _tolerant(probe: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
    async def tolerant() -> bool:
        try:
            return await probe()
        except httpx.TransportError:
            return False

    return tolerant


async def test_it_survives_the_death_of_postgres(
    process: Starter, own_database: PostgresServer, remote: Remote
) -> None:
    service = await process(own_database.dsn).start()
    await remote.lease(letter(1))
    await crash(own_database)
    for _ in range(3):
        with pytest.raises(Unavailable, match="Postgres"):
            await remote.open(letter(2))
    assert "Postgres" in (await _checks(service))["postgres"]
    await own_database.start()
    await eventually(lambda: _answers(remote))
    beat = await remote.beat(**{KEY: 1})
    assert beat.lost == []
    assert beat.grace_s > 0
    assert (await remote.open(letter(2))).state == "busy"


async def test_it_survives_the_death_of_nats(
    service: ServiceProcess, nats: Nats, remote: Remote, database: str
) -> None:
    await remote.lease(letter(1))
    connection = await asyncpg.connect(database)
    await connection.execute("update grace set until = '-infinity'")
    await connection.execute("update conversation set lease_until = now() - interval '1 s'")
    await crash(nats.server)
    await nats.server.start()
    await eventually(lambda: _answers(remote), 20)
    # Holders could not renew: the grace is there before the first call that might take over.
    assert (await remote.open(letter(2), "w2")).state == "busy"
    until = await connection.fetchval("select until > now() from grace")
    await connection.close()
    assert until


async def test_a_service_that_starts_gives_grace_first(
    process: Starter, database: str, remote: Remote
) -> None:
    first = await process(database).start()
    await remote.lease(letter(1))
    await first.kill()
    connection = await asyncpg.connect(database)
    await connection.execute("update conversation set lease_until = now() - interval '1 s'")
    await connection.close()
    await process(database).start()
    assert (await remote.open(letter(1), "w2")).state == "busy"


async def test_sigterm_ends_it_well_and_answers_first(
    service: ServiceProcess, database: str, remote: Remote
) -> None:
    await remote.lease(letter(1))
    blocker = await asyncpg.connect(database)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("select 1 from conversation for update")
    under_way = asyncio.create_task(remote.open(letter(2)))
    waiting = "select exists (select 1 from pg_locks where not granted)"
    await eventually(lambda: blocker.fetchval(waiting))
    ending = asyncio.create_task(service.stop())
    await eventually(lambda: "stopping" in _log(service) or not ending.done())
    await transaction.rollback()
    assert (await under_way).state == "busy"
    assert await ending == 0
    await blocker.close()


def _log(service: ServiceProcess) -> str:
    return service.log.read_text()


async def test_sigterm_ends_it_while_it_waits(
    process: Starter, own_postgres: PostgresServer
) -> None:
    await crash(own_postgres)
    service = process(own_postgres.dsn)
    await service.spawn()
    await eventually(lambda: "service.waiting" in _log(service))
    assert await service.stop() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("drop table alembic_version", "python -m memory migrate"),
        ("update alembic_version set version_num = '9999'", "the database is at 9999"),
        ("delete from alembic_version", "python -m memory migrate"),
    ],
)
async def test_a_schema_that_does_not_fit_is_refused(
    process: Starter, database: str, change: str, message: str
) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute(change)
    await connection.close()
    service = process(database)
    await service.spawn()
    assert await service.ended() == 2
    assert message in _log(service)


@pytest.mark.parametrize(
    "dsn", ["postgresql://stranger@127.0.0.1:{port}/postgres", "nonsense://x", "postgresql://[x"]
)
async def test_a_dsn_that_will_never_work_is_refused(
    process: Starter, postgres_server: PostgresServer, dsn: str
) -> None:
    service = process(dsn.format(port=postgres_server.port))
    await service.spawn()
    assert await service.ended() == 2
    assert "postgres_dsn" in _log(service)

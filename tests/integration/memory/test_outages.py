"""The memory service as a process, when its servers are away, full or not as they should be."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psutil
import pytest

from posthouse.embedded.ports import free_port
from posthouse.embedded.postgres import PostgresServer
from posthouse.errors import Busy, TransientError, Unavailable
from tests.integration.memory.remote import Remote
from tests.integration.memory.requests import letter
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats, crash, migrate
from tests.support.wait import eventually

Starter = Callable[..., ServiceProcess]
EXPIRE = "update conversation set lease_until = now() - interval '1 s'"
BLOCK = "select 1 from conversation for update"


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
async def remote(nats: Nats) -> Remote:
    """A worker's connection."""
    return Remote(await nats.connect())


@pytest.fixture
async def beside(database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to the service's database."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


async def _checks(service: ServiceProcess) -> dict[str, Any]:
    """What /readyz says; nothing while nobody listens."""
    async with httpx.AsyncClient(timeout=5) as http:
        try:
            answer = await http.get(f"{service.health_url}/readyz")
        except httpx.TransportError:
            return {}
    return {"status": answer.status_code, **answer.json()["checks"]}


async def _answers(remote: Remote) -> bool:
    try:
        await remote.beat()
    except TransientError:
        return False
    return True


def _log(service: ServiceProcess) -> str:
    return service.log.read_text()


@contextmanager
def _paused(server: PostgresServer) -> Iterator[None]:
    """Its processes stand still; each is in a process group of its own."""
    postmaster = psutil.Process(server.pid)
    processes = [postmaster, *postmaster.children()]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


async def test_it_waits_for_postgres_and_survives_its_death(
    process: Starter, own_postgres: PostgresServer, remote: Remote
) -> None:
    await asyncio.to_thread(migrate, own_postgres.dsn)
    await crash(own_postgres)
    service = process(own_postgres.dsn)
    await service.spawn()

    async def not_connected() -> bool:
        told = await _checks(service)
        return told.get("postgres") == "the database is not connected yet"

    await eventually(not_connected, 30)
    await own_postgres.start()
    await eventually(lambda: _answers(remote), 30)
    lease = await remote.lease(letter(1))

    await crash(own_postgres)
    for _ in range(3):
        with pytest.raises(Unavailable, match="Postgres"):
            await remote.open(letter(2))
    told = await _checks(service)
    assert (told["status"], "Postgres" in told["postgres"]) == (503, True)

    await own_postgres.start()
    await eventually(lambda: _answers(remote), 30)
    beat = await remote.beat(lease.epoch)
    assert beat.lost == []
    assert beat.grace_s > 0
    assert (await remote.open(letter(2), "w2")).state == "busy"


async def test_it_answers_while_postgres_does_not(
    process: Starter, own_postgres: PostgresServer, nats: Nats
) -> None:
    """A paused Postgres: every call is refused in time, none is left hanging."""
    await asyncio.to_thread(migrate, own_postgres.dsn)
    await process(own_postgres.dsn, pool_size=2).start()
    workers = [Remote(await nats.connect(), f"im.cli.c{n}") for n in range(4)]
    leases = [await worker.lease(letter(1)) for worker in workers]
    with _paused(own_postgres):
        for _ in range(2):
            answers = await asyncio.gather(
                *(worker.open(letter(2), timeout_s=2.8) for worker in workers),
                *(worker.beat(1) for worker in workers),
                return_exceptions=True,
            )
            assert {type(answer) for answer in answers} <= {Busy, Unavailable}
            assert not [answer for answer in answers if "memory.turn" in str(answer)]
    await eventually(lambda: _answers(workers[0]), 30)
    for worker, lease in zip(workers, leases, strict=True):
        assert (await worker.beat(lease.epoch)).lost == []


async def test_it_survives_the_death_of_nats(
    process: Starter,
    nats: Nats,
    remote: Remote,
    database: str,
    beside: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    service = await process(database).start()
    assert await _checks(service) == {"status": 200, "postgres": "ok", "nats": "ok"}
    await remote.lease(letter(1))
    # Whoever held a lease while no service was there could not renew it either.
    assert await beside.fetchval("select until > now() from grace")
    await beside.execute("update grace set until = '-infinity'")
    await beside.execute(EXPIRE)
    await crash(nats.server)

    async def nats_is_away() -> bool:
        told = await _checks(service)
        return (told["status"], told["postgres"]) == (503, "ok") and told["nats"] != "ok"

    await eventually(nats_is_away)
    await nats.server.start()
    await eventually(lambda: _answers(remote), 30)
    # Holders could not renew: the grace was there before the first call that might take over.
    assert (await remote.open(letter(2), "w2")).state == "busy"
    assert await beside.fetchval("select until > now() from grace")


async def test_a_full_pool_is_busy_at_once_and_costs_no_renewal(
    process: Starter,
    database: str,
    nats: Nats,
    remote: Remote,
    beside: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    await process(database, pool_size=2).start()
    await remote.lease(letter(1))
    other = Remote(await nats.connect(), "im.cli.other")
    lease = await other.lease(letter(1))
    async with beside.transaction():
        await beside.execute(f"{BLOCK} limit 1")
        opens = [asyncio.create_task(remote.open(letter(n))) for n in range(2, 12)]
        await eventually(lambda: any(task.done() for task in opens))
        assert (await other.beat(lease.epoch)).lost == []
        refused = await asyncio.gather(*opens, return_exceptions=True)
    # Two have a connection and wait for the lock, until Postgres ends that.
    assert all(isinstance(r, TransientError) for r in refused)
    assert sum(isinstance(r, Busy) for r in refused) >= 8
    # Perhaps holders were not heard either: nobody takes over for a while (R11).
    assert (await remote.beat()).grace_s > 0


async def test_sigterm_ends_it_well_and_answers_first(
    process: Starter,
    database: str,
    remote: Remote,
    beside: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    service = await process(database).start()
    await remote.lease(letter(1))
    transaction = beside.transaction()
    await transaction.start()
    await beside.execute(BLOCK)
    under_way = asyncio.create_task(remote.open(letter(2)))
    await eventually(
        lambda: beside.fetchval("select exists (select 1 from pg_locks where not granted)")
    )
    ending = asyncio.create_task(service.stop())

    await eventually(lambda: "service.stopping" in _log(service))
    await transaction.rollback()
    assert (await under_way).state == "busy"
    assert await ending == 0


async def test_a_rolling_restart_loses_no_request(
    process: Starter, database: str, nats: Nats
) -> None:
    first, second = process(database), process(database)
    await asyncio.gather(first.start(), second.start())
    stopped = asyncio.Event()
    answered = 0

    async def ask(remote: Remote) -> None:
        nonlocal answered
        while not stopped.is_set():
            # One that is lost raises Unavailable, after three seconds.
            await remote.beat()
            answered += 1

    asking = [asyncio.create_task(ask(Remote(await nats.connect()))) for _ in range(8)]
    await eventually(lambda: answered > 100)
    assert await first.stop() == 0
    before = answered
    await eventually(lambda: answered > before + 100)
    stopped.set()
    await asyncio.gather(*asking)


async def test_sigterm_ends_it_well_without_nats(
    process: Starter, database: str, nats: Nats
) -> None:
    service = await process(database).start()
    await crash(nats.server)
    async with asyncio.timeout(20):
        assert await service.stop() == 0


async def test_sigterm_ends_it_while_it_waits(process: Starter) -> None:
    service = process(f"postgresql://postgres@127.0.0.1:{free_port()}/posthouse")
    await service.spawn()
    await eventually(lambda: "service.waiting" in _log(service), 30)
    assert await service.stop() == 0


async def test_a_database_without_schema_is_refused(
    process: Starter, postgres_server: PostgresServer
) -> None:
    service = process(postgres_server.dsn)
    await service.spawn()
    assert await service.ended() == 2
    assert "run `python -m memory migrate`" in _log(service)

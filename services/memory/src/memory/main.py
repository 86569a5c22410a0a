"""Composition root of the memory service."""

import asyncio

import structlog
from faststream.nats import NatsBroker

from memory import settings as numbers
from memory.adapters.postgres import PostgresDatabase
from memory.handlers import build_server
from memory.migrate import HEAD
from posthouse import bus, health, service
from posthouse.errors import TransientError, Unavailable
from posthouse.settings import Settings

log = structlog.get_logger(__name__)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve ``memory.*`` until ``stop`` is set; requests under way are answered first."""
    database = PostgresDatabase(settings.postgres_dsn, numbers.pool_size(settings))
    broker = bus.build_broker(settings.nats_url, "memory", on_reconnect=database.outage.set)
    build_server(database, settings.memory).attach(broker)
    checks = health.Health()
    checks.add("postgres", database.ping)
    checks.add("nats", lambda: _ping(broker))
    server = health.HealthServer(checks, settings.http_host, settings.health_port)
    await server.start()
    try:
        await service.patiently(lambda: database.start(HEAD), stop)
        # Leases that ran out while this service was away could not be renewed.
        await _start_grace(database, settings, restart=True)
        await service.patiently(lambda: bus.start(broker), stop)
        log.info("service.ready")
        await _watch_outages(database, settings, stop)
    finally:
        await broker.stop()
        await database.stop()
        await server.stop()


async def _watch_outages(
    database: PostgresDatabase, settings: Settings, stop: asyncio.Event
) -> None:
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            outage = asyncio.create_task(database.outage.wait())
            await asyncio.wait({stopping, outage}, return_when=asyncio.FIRST_COMPLETED)
            outage.cancel()
            if database.outage.is_set():
                database.outage.clear()
                await _start_grace(database, settings, restart=False)
    finally:
        stopping.cancel()


async def _start_grace(database: PostgresDatabase, settings: Settings, restart: bool) -> None:
    try:
        await database.call("turn_v1.start_grace", settings.memory.lease_ttl_s, restart)
        log.info("grace.started", ttl_s=settings.memory.lease_ttl_s, restart=restart)
    except TransientError as error:
        # Postgres is away: its own start time gives the grace once it is back.
        log.warning("grace.not_started", reason=error.message)


async def _ping(broker: NatsBroker) -> None:
    if not await broker.ping(health.CHECK_TIMEOUT_S):
        raise Unavailable("NATS does not answer")


def main() -> None:
    """Entry point."""
    service.run("memory", serve)

"""Composition root of the memory service."""

import asyncio

import structlog
from faststream.nats import NatsBroker

from memory import settings as numbers
from memory.adapters.postgres import PostgresDatabase
from memory.handlers import build_server
from memory.migrations import HEAD
from posthouse import bus, health, readiness, service
from posthouse.settings import Settings

log = structlog.get_logger(__name__)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve ``memory.*`` until ``stop`` is set; requests under way are answered first."""
    database = PostgresDatabase(
        settings.postgres_dsn, numbers.pool_size(settings), settings.memory.lease_ttl_s
    )
    # Leases that ran out while this service, NATS or Postgres was away could not be renewed.
    database.grace_due(restart=True)
    broker = bus.build_broker(
        settings.nats_url, "memory", on_reconnect=lambda: database.grace_due(restart=True)
    )
    build_server(database, settings.memory).attach(broker)
    checks = _checks(database, broker, settings.nats_url)
    server = health.HealthServer(checks, settings.http_host, settings.health_port)
    await server.start()
    try:
        await service.patiently(lambda: database.start(HEAD), stop)
        await service.patiently(lambda: bus.start(broker), stop)
        log.info("service.ready")
        await stop.wait()
        log.info("service.stopping")
    finally:
        await bus.stop(broker)
        await database.stop()
        await server.stop()


def _checks(database: PostgresDatabase, broker: NatsBroker, nats_url: str) -> health.Health:
    async def connected() -> None:
        readiness.connected(broker._connection, nats_url)

    checks = health.Health()
    checks.add("postgres", database.ping)
    checks.add("nats", connected)
    return checks


def main() -> None:
    """Entry point."""
    service.run("memory", serve)

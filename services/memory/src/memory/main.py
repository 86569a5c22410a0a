"""Composition root of the memory service."""

import asyncio

import nats.errors
import structlog
from faststream.nats import NatsBroker
from faststream.nats.subscriber.usecases import CoreSubscriber

from memory import settings as numbers
from memory.adapters.postgres import PostgresDatabase
from memory.handlers import build_server
from memory.migrations import HEAD
from posthouse import bus, health, service
from posthouse.errors import Unavailable
from posthouse.settings import Settings

log = structlog.get_logger(__name__)

DRAIN_TIMEOUT_S = 2.0
# From FastStream's queue to its handlers: two steps of the event loop.
HAND_OVER_S = 0.05


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
    checks = health.Health()
    checks.add("postgres", database.ping)
    checks.add("nats", lambda: _ping(broker))
    server = health.HealthServer(checks, settings.http_host, settings.health_port)
    await server.start()
    try:
        await service.patiently(lambda: database.start(HEAD), stop)
        await service.patiently(lambda: bus.start(broker), stop)
        log.info("service.ready")
        await stop.wait()
        log.info("service.stopping")
    finally:
        await _take_no_more(broker)
        await bus.stop(broker)
        await database.stop()
        await server.stop()


async def _take_no_more(broker: NatsBroker) -> None:
    """Leave the queue groups, and begin what has arrived.

    FastStream drops what arrives while it stops: a rolling restart under load lost 19 requests,
    each to a timeout; with this, none.
    """
    heard = [s for s in broker.subscribers if isinstance(s, CoreSubscriber)]
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            subscriptions = [s.subscription for s in heard if s.subscription]
            await asyncio.gather(*(s.drain() for s in subscriptions))  # type: ignore[no-untyped-call]
            await asyncio.sleep(HAND_OVER_S)
    except (nats.errors.Error, TimeoutError):
        log.info("service.not_drained")  # NATS is away
    else:
        for subscriber in heard:
            subscriber.subscription = None


async def _ping(broker: NatsBroker) -> None:
    if not await broker.ping(health.CHECK_TIMEOUT_S):
        raise Unavailable("NATS does not answer")


def main() -> None:
    """Entry point."""
    service.run("memory", serve)

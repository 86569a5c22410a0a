"""Composition root of the scheduler."""

import asyncio

import structlog
from nats.aio.client import Client

from posthouse import bootstrap, bus, health, service
from posthouse.settings import Settings
from scheduler.adapters.nats_checks import State
from scheduler.adapters.nats_schedules import NatsSchedules
from scheduler.handlers import build_server
from scheduler.settings import JETSTREAM_TIMEOUT_S

log = structlog.get_logger(__name__)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve ``scheduler.*`` until ``stop`` is set; requests under way are answered first.

    Raises Drift and Unavailable.
    """
    state, ready = State(settings.nats_url), health.Health()
    state.add_to(ready)
    server = health.HealthServer(ready, settings.http_host, settings.health_port)
    await server.start()
    try:
        await service.patiently(lambda: _connect(settings, state), stop)
        if state.connection is not None and not stop.is_set():
            await _answer(settings, state, state.connection, stop)
    finally:
        state.serving = False
        await server.stop()
        if state.connection is not None:
            await bus.close(state.connection)


async def _connect(settings: Settings, state: State) -> None:
    if state.connection is None:
        state.connection = await bus.connect(settings.nats_url, "scheduler")
    await bootstrap.check(state.connection.jetstream(timeout=JETSTREAM_TIMEOUT_S))


async def _answer(
    settings: Settings, state: State, connection: Client, stop: asyncio.Event
) -> None:
    js = connection.jetstream(timeout=JETSTREAM_TIMEOUT_S)
    broker = bus.build_broker(settings.nats_url, "scheduler-rpc")
    build_server(NatsSchedules(js)).attach(broker)
    try:
        await service.patiently(lambda: bus.start(broker), stop)
        state.serving = True
        log.info("service.ready")
        await stop.wait()
    finally:
        state.serving = False
        await bus.stop(broker)


def main() -> None:
    """Entry point."""
    service.run("scheduler", serve)

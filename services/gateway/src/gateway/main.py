"""Composition root of the gateway."""

import asyncio
import time
from uuid import uuid4

import structlog
from nats.aio.client import Client

from gateway import app as application
from gateway import registry
from gateway.adapters.http_egress import HttpPosts
from gateway.adapters.nats_checks import State
from gateway.adapters.nats_dead_letters import NatsDeadLetters
from gateway.adapters.nats_feeds import NatsFeeds
from gateway.adapters.nats_inbound import NatsInbound
from gateway.adapters.nats_outbox import NatsOutbox
from gateway.adapters.nats_readers import NatsReaders
from gateway.adapters.nats_records import NatsRecords
from gateway.adapters.rpc_memory import RpcMemory
from gateway.channels import web
from gateway.delivery.courier import Courier, Outside
from gateway.delivery.decision import Replica
from gateway.delivery.rounds import Rounds
from gateway.handlers import Backend
from gateway.ports import Channel
from gateway.settings import JETSTREAM_TIMEOUT_S, DeliveryLimits
from gateway.streaming import EventStreams
from posthouse import bootstrap, bus, health, service
from posthouse.egress.http import HttpEgress
from posthouse.rpc import RpcClient
from posthouse.settings import Settings

log = structlog.get_logger(__name__)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve HTTP and deliver until ``stop`` is set; sends under way are ended first.

    Raises Drift, Unavailable and ConfigError.
    """
    async with HttpEgress() as http:
        await _serve(settings, registry.discover(settings, HttpPosts(http)), stop)


async def _serve(settings: Settings, channels: dict[str, Channel], stop: asyncio.Event) -> None:
    state = State(stop, settings.nats_url)
    ready = health.Health()
    state.add_to(ready, channels)
    app = application.build_app(settings, ready, channels=channels)
    # Before NATS is there: /readyz says what is missing.
    server = health.AppServer(app, settings.http_host, settings.http_port)
    await server.start()
    try:
        await service.patiently(lambda: _connect(settings, state, list(channels)), stop)
        if state.connection is None:
            return
        channels[web.NAME] = _web(state.connection)
        application.connect(app, _backend(state.connection, stop))
        state.serving = True
        log.info("service.ready", channels=sorted(channels))
        await _deliver(state.connection, list(channels.values()), stop)
    finally:
        await server.stop()
        if state.connection is not None:
            await bus.close(state.connection)


async def _connect(settings: Settings, state: State, domains: list[str]) -> None:
    if state.connection is None:
        state.connection = await bus.connect(settings.nats_url, "gateway")
    js = state.connection.jetstream(timeout=JETSTREAM_TIMEOUT_S)
    await bootstrap.check(js, domains)


def _backend(connection: Client, stop: asyncio.Event) -> Backend:
    return Backend(
        NatsInbound(connection),
        RpcMemory(RpcClient(connection)),
        EventStreams(NatsFeeds(connection), stop),
    )


def _web(connection: Client) -> Channel:
    return web.Web(NatsReaders(connection.jetstream(timeout=JETSTREAM_TIMEOUT_S)))


async def _deliver(connection: Client, channels: list[Channel], stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for channel in channels:
            rounds = build_rounds(connection, channel, DeliveryLimits())
            group.create_task(rounds.run(stop), name=f"deliver {channel.domain}")
        await stop.wait()


def build_rounds(connection: Client, channel: Channel, limits: DeliveryLimits) -> Rounds:
    """The delivery of one bot by this process, as a replica with an id of its own."""
    js = connection.jetstream(timeout=JETSTREAM_TIMEOUT_S)
    outside = Outside(
        channel=channel,
        outbox=NatsOutbox(js, channel.domain),
        records=NatsRecords(js),
        memory=RpcMemory(RpcClient(connection)),
        dead_letters=NatsDeadLetters(js),
        clock=now_ms,
    )
    me = Replica(uuid4().hex, now_ms(), channel.capabilities.idempotent, limits)
    return Rounds(outside.outbox, Courier(outside, me), outside.dead_letters, limits)


def now_ms() -> int:
    """The time of day in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def main() -> None:
    """Entry point."""
    service.run("gateway", serve)

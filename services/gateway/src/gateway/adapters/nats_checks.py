"""What ``/readyz`` looks at."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from nats.aio.client import Client

from gateway.adapters.nats_errors import unavailable
from gateway.settings import JETSTREAM_TIMEOUT_S
from posthouse import readiness, streams, subjects
from posthouse.errors import Unavailable
from posthouse.health import Health


@dataclass
class State:
    """What the process has reached so far, and whether it is to stop."""

    stop: asyncio.Event
    nats_url: str
    connection: Client | None = None
    serving: bool = False

    def add_to(self, health: Health, domains: Iterable[str]) -> None:
        """Register every check."""
        health.add("process", self._serving)
        health.add("nats", self._connected)
        health.add("inbound", self._inbound)
        for domain in domains:
            health.add(f"deliver {domain}", partial(self._deliver, domain))
        health.add("memory", self._memory)

    async def _serving(self) -> None:
        if self.stop.is_set():
            raise Unavailable("the process is stopping")
        if not self.serving:
            raise Unavailable("the process is starting")

    async def _connected(self) -> None:
        self._bus()

    async def _inbound(self) -> None:
        with unavailable("the stream INBOUND"):
            js = self._bus().jetstream(timeout=JETSTREAM_TIMEOUT_S)
            await js.stream_info(streams.INBOUND)

    async def _deliver(self, domain: str) -> None:
        durable = subjects.deliver_durable(domain)
        with unavailable(f"the durable {durable} on OUTBOUND"):
            js = self._bus().jetstream(timeout=JETSTREAM_TIMEOUT_S)
            await js.consumer_info(streams.OUTBOUND, durable)

    async def _memory(self) -> None:
        await readiness.memory_answers(self._bus())

    def _bus(self) -> Client:
        return readiness.connected(self.connection, self.nats_url)

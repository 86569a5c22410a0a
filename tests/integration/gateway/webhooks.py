"""All services as processes, with bots of the channel ``webhook``, and programs on both ends."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from posthouse import streams, subjects
from posthouse.address import Address
from posthouse.bootstrap import bootstrap
from posthouse.embedded.nats import NatsServer
from posthouse.settings import Settings
from tests.support.cluster import Cluster, run_cluster
from tests.support.processes import ServiceProcess, free_port
from tests.support.servers import Nats
from tests.support.wait import eventually
from tests.support.webhook_receiver import Delivery, WebhookReceiver, receiving
from tests.support.webhook_sender import OTHER, WHSEC, standard

DUPLICATE_WINDOW_S = 0.1
"""So short that repeats get past JetStream, and memory has to know them."""

SECRETS = {"SHOP_SECRET": WHSEC, "OTHER_SECRET": OTHER}


class Ports(NamedTuple):
    """Of callbacks that a test starts by itself."""

    late: int
    page: int


@dataclass
class Posthouse:
    """The running system, and how a program outside sees it."""

    cluster: Cluster
    gateway: ServiceProcess
    receiver: WebhookReceiver
    ports: Ports

    async def post(
        self, body: bytes, headers: dict[str, Any] | None = None, bot: str = "shop"
    ) -> httpx.Response:
        """One webhook, signed for the bot ``shop`` by default."""
        signed = now_signed(body) if headers is None else headers
        async with httpx.AsyncClient(base_url=self.gateway.health_url, timeout=10) as http:
            return await http.post(f"/webhooks/webhook/{bot}", content=body, headers=signed)

    async def say(self, id: str, chat: str, content: str, bot: str = "shop") -> httpx.Response:
        """A message in a conversation."""
        return await self.post(message(id, chat, content), bot=bot)

    async def answers(self, id: str, timeout_s: float = 30) -> list[Delivery]:
        """Wait for a callback of the bot ``shop`` to a message; all that came so far."""

        def found() -> list[Delivery]:
            here = [d for d in self.receiver.deliveries if d.path == "/shop"]
            return [d for d in here if f"webhook:shop:{id}" in d.body["in_reply_to"]]

        return await eventually(found, timeout_s, f"an answer to {id}; see {self.gateway.log}")

    async def stored(self, chat: str, bot: str = "shop") -> list[dict[str, Any]]:
        """What is in INBOUND of a conversation."""
        key = subjects.key(Address.im(f"webhook+{bot}", chat))
        return [body for _, body in await self.cluster.messages("INBOUND", f"inbound.{key}")]

    async def dead(self, chat: str, bot: str) -> list[str]:
        """The reasons of the dead letters of a conversation."""
        key = subjects.key(Address.im(f"webhook+{bot}", chat))
        letters = await self.cluster.messages("DLQ", f"dlq.outbound.{key}")
        return [headers["Posthouse-Reason"] for headers, _ in letters]


def message(id: str, chat: str, content: str) -> bytes:
    """The body of a webhook."""
    return orjson.dumps({"id": id, "sender": chat, "content": content})


def now_signed(body: bytes, secret: str = WHSEC, away_s: int = 0) -> dict[str, str]:
    """The headers of Standard Webhooks, at this moment or ``away_s`` seconds from it."""
    return standard(body, secret, timestamp=int(time.time()) + away_s)


@asynccontextmanager
async def run_posthouse(server: NatsServer, dsn: str, folder: Path) -> AsyncIterator[Posthouse]:
    """NATS and Postgres are there already; everything else is started and stopped."""
    receiver = WebhookReceiver({"/shop": WHSEC[6:], "/slow": WHSEC[6:]})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(receiving(receiver))
        ports = Ports(free_port(), free_port())
        bots = _bots(receiver.url, ports)
        nats = Nats(server)
        stack.push_async_callback(nats.close)
        await _prepare(nats, bots)
        cluster = await stack.enter_async_context(run_cluster(nats, dsn, folder, **SECRETS))
        await cluster.start("agent_worker")
        channels = json.dumps({"webhook": bots})
        gateway = await cluster.start("gateway", POSTHOUSE_CHANNELS=channels)
        yield Posthouse(cluster, gateway, receiver, ports)


def _bots(url: str, ports: Ports) -> list[dict[str, Any]]:
    usual = {"secret_env": "SHOP_SECRET", "allow_private_callback": True}
    return [
        {**usual, "bot": "shop", "callback_url": f"{url}/shop"},
        {**usual, "bot": "moved", "callback_url": f"{url}/moved"},
        {**usual, "bot": "late", "callback_url": f"http://127.0.0.1:{ports.late}/late"},
        {**usual, "bot": "page", "callback_url": f"http://127.0.0.1:{ports.page}/"},
        {**usual, "bot": "slow", "callback_url": f"{url}/slow", "callback_timeout_s": 0.5},
        {"bot": "inside", "secret_env": "SHOP_SECRET", "callback_url": "https://localhost:9/x"},
        {"bot": "other", "secret_env": "OTHER_SECRET"},
    ]


async def _prepare(nats: Nats, bots: list[dict[str, Any]]) -> None:
    js = await nats.jetstream()
    await bootstrap(js, Settings(channels={"webhook": bots}).domains())
    config = (await js.stream_info(streams.INBOUND)).config
    config.duplicate_window = DUPLICATE_WINDOW_S
    await js.update_stream(config)

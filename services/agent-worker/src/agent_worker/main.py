"""Composition root of the agent worker."""

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import structlog
from faststream.nats import NatsBroker
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from agent_worker import handlers
from agent_worker import settings as numbers
from agent_worker.adapters.jetstream import JetStreamEvents, JetStreamInbox, JetStreamPublisher
from agent_worker.adapters.memory import RpcCallApi, RpcTurnApi
from agent_worker.commands import Commands
from agent_worker.llm.routing import RoutedClient, build_client
from agent_worker.registry import ToolRegistry, load_tools
from agent_worker.requests import AgentRequests
from agent_worker.roles import RoleBook
from agent_worker.turns.briefing import Agent, TurnTools
from agent_worker.turns.feeds import Feeds
from agent_worker.turns.heartbeat import Conversations, Heartbeat
from agent_worker.turns.holder import Faults, Services
from agent_worker.turns.notices import Notices
from agent_worker.turns.outbox import Outbox
from agent_worker.turns.worker import Worker
from agent_worker.watchdog import Watchdog
from posthouse import bootstrap, bus, health, readiness, service, subjects
from posthouse.errors import ConfigError, PosthouseError, Unavailable
from posthouse.rpc import RpcClient
from posthouse.settings import Settings

if TYPE_CHECKING:
    from agent_worker.mcp_tools.servers import McpServers

log = structlog.get_logger(__name__)


def worker_name() -> str:
    """Unique for each process, also when hosts or pids repeat: a lease names its owner."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


class Link:
    """The worker's connections: renewals have one of their own (R11)."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._main: Client | None = None
        self._beats: Client | None = None
        self._inbox: JetStreamInbox | None = None

    async def open(self) -> None:
        """Connect and compare the streams. Raises Unavailable, Drift; may be repeated."""
        self._main = self._main or await bus.connect(self._url, "worker", self._reconnected)
        self._beats = self._beats or await bus.connect(self._url, "worker-heartbeat")
        self._inbox = self._inbox or JetStreamInbox(self.js)
        await self._compare()

    async def connected(self) -> None:
        """Raises Unavailable while one of the connections is not there."""
        for connection in (self._main, self._beats):
            readiness.connected(connection, self._url)

    async def close(self) -> None:
        """Send what is buffered, close both."""
        for connection in (self._main, self._beats):
            if connection is not None:
                await bus.close(connection)

    @property
    def main(self) -> Client:
        """For everything but renewals. Raises Unavailable before ``open``."""
        return _there(self._main)

    @property
    def beats(self) -> Client:
        """For renewals."""
        return _there(self._beats)

    @property
    def js(self) -> JetStreamContext:
        """JetStream on the main connection."""
        return self.main.jetstream()

    @property
    def inbox(self) -> JetStreamInbox:
        """The INBOUND stream."""
        if self._inbox is None:
            raise Unavailable("NATS is not connected yet")
        return self._inbox

    async def _compare(self) -> None:
        await bootstrap.check(self.js)
        await self.inbox.refresh()

    async def _reconnected(self) -> None:
        """After a restart of NATS the streams may be others, and EVENTS is gone (R4, R16)."""
        log.info("nats.reconnected")
        try:
            await self._compare()
        except PosthouseError as error:
            log.warning("nats.not_usable", code=error.code, reason=error.message)


def _there(connection: Client | None) -> Client:
    if connection is None:
        raise Unavailable("NATS is not connected yet")
    return connection


class Parts(NamedTuple):
    """What runs in a worker process."""

    worker: Worker
    conversations: Conversations
    heartbeat: Heartbeat
    requests: AgentRequests
    feeds: Feeds
    watchdog: Watchdog


def build(settings: Settings, link: Link, agent: Agent, stop: asyncio.Event) -> Parts:
    """Put the parts together over open connections."""
    name = worker_name()
    publisher = JetStreamPublisher(link.main)
    rpc = RpcClient(link.main)
    api = RpcTurnApi(rpc, RpcClient(link.beats))
    event_log = JetStreamEvents(link.js)
    feeds = Feeds(event_log)
    outbox = Outbox(publisher, feeds)
    notices = Notices(api, link.inbox, publisher, outbox, name)
    conversations = Conversations(numbers.OWNED_PER_SLOT * settings.slots)
    services = Services(
        name=name,
        settings=settings,
        api=api,
        inbox=link.inbox,
        outbox=outbox,
        notices=notices,
        turn_tools=TurnTools(name, api, notices, event_log, feeds, agent),
        faults=Faults(),
        slots=asyncio.Semaphore(settings.slots),
        stopping=stop,
    )
    commands = Commands(api, notices, publisher, settings.embedded)
    worker = Worker(services, conversations, commands)
    requests = AgentRequests(RpcCallApi(rpc), agent, name, numbers.AGENT_REQUESTS)
    watchdog = Watchdog(numbers.STALL_LEASES * settings.memory.lease_ttl_s)
    heartbeat = Heartbeat(
        name,
        api,
        outbox,
        conversations,
        requests.calls,
        worker.hold,
        requests.cancel,
        watchdog.feed,
    )
    outbox.on_published = heartbeat.hint
    return Parts(worker, conversations, heartbeat, requests, feeds, watchdog)


def load_roles(settings: Settings, llm: RoutedClient) -> RoleBook:
    """The roles; those of the start must fit the models that there are. Raises ConfigError."""
    book = RoleBook(Path(settings.agents_dir))
    for role in book.current().by_name.values():
        if role.model:
            try:
                llm.check(role.model)
            except ConfigError as error:
                raise ConfigError(f"role {role.name}: {error.message}") from error
    return book


def load_mcp(settings: Settings, tools: ToolRegistry) -> "McpServers | None":
    """The MCP servers, whose tools are added to ``tools``. Raises ConfigError."""
    if not settings.mcp:
        return None
    # The library takes half a second to load, which only those wait who use it.
    from agent_worker.mcp_tools.servers import McpServers

    return McpServers(settings.mcp, tools)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Work until ``stop`` is set; then hand over at step borders and return."""
    llm = build_client(settings)
    agent = Agent(
        llm=llm,
        tools=load_tools(settings),
        roles=load_roles(settings, llm),
        window=llm.context_tokens,
        deadline_s=settings.budgets.deadline_s,
        token_budget=settings.budgets.tokens,
        workspace_dir=settings.workspace_dir,
    )
    mcp = load_mcp(settings, agent.tools)
    link = Link(settings.nats_url)
    ready = asyncio.Event()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(agent.llm.aclose)
        if mcp is not None:
            stack.push_async_callback(mcp.stop)
            mcp.start()
        server = health.HealthServer(_checks(link, ready), settings.http_host, settings.health_port)
        await server.start()
        stack.push_async_callback(server.stop)
        stack.push_async_callback(link.close)
        await service.patiently(link.open, stop)
        if stop.is_set():
            return
        parts = build(settings, link, agent, stop)
        broker = bus.build_broker(settings.nats_url, "worker-agents")
        handlers.attach(broker, parts.requests)
        await service.patiently(lambda: bus.start(broker), stop)
        try:
            await _work(link, parts, stop, ready)
        finally:
            await _hand_over(parts, broker)


def _checks(link: Link, ready: asyncio.Event) -> health.Health:
    async def started() -> None:
        if not ready.is_set():
            raise Unavailable("starting or stopping")

    checks = health.Health()
    checks.add("worker", started)
    checks.add("nats", link.connected)
    checks.add("inbound", lambda: link.inbox.refresh())
    checks.add("memory", lambda: readiness.memory_answers(link.main))
    return checks


async def _work(link: Link, parts: Parts, stop: asyncio.Event, ready: asyncio.Event) -> None:
    async def on_hint(_: Msg) -> None:
        parts.heartbeat.hint()

    await link.main.subscribe(subjects.CONTROL_ALL, cb=on_hint)
    beating = parts.heartbeat.start()
    pulling = [
        asyncio.create_task(parts.worker.pull_turns(), name="turns"),
        asyncio.create_task(parts.worker.pull_commands(), name="commands"),
    ]
    stopped = asyncio.create_task(stop.wait(), name="stop")
    ready.set()
    log.info("service.ready")
    # A loop that ends by itself is a fault: stop cleanly, and be started anew.
    ended, _ = await asyncio.wait({beating, *pulling, stopped}, return_when=asyncio.FIRST_COMPLETED)
    ready.clear()
    stop.set()
    await service.end(*pulling, stopped)
    for task in ended - {stopped}:
        task.result()


async def _hand_over(parts: Parts, broker: NatsBroker) -> None:
    """Renew until everything is handed back; report what was published last."""
    parts.heartbeat.stopping = True
    await parts.worker.settled(numbers.OPEN_PATIENCE_S)
    await asyncio.gather(
        parts.conversations.hand_over(numbers.HANDOVER_S), bus.stop(broker, numbers.HANDOVER_S)
    )
    await parts.feeds.settled(numbers.EVENT_TIMEOUT_S)
    await parts.heartbeat.stop()
    parts.watchdog.stop()


def main() -> None:
    """Entry point."""
    service.run("agent-worker", serve)

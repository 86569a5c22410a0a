"""Composition root of the agent worker."""

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from uuid import uuid4

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from agent_worker import handlers
from agent_worker import settings as numbers
from agent_worker.adapters.jetstream import JetStreamEvents, JetStreamInbox, JetStreamPublisher
from agent_worker.adapters.memory import RpcCallApi, RpcTurnApi
from agent_worker.commands import Commands
from agent_worker.llm.routing import build_client
from agent_worker.registry import load_tools
from agent_worker.requests import AgentRequests
from agent_worker.turns.heartbeat import Conversations, Heartbeat
from agent_worker.turns.holder import Faults, Services
from agent_worker.turns.notices import Notices
from agent_worker.turns.outbox import Outbox
from agent_worker.turns.turn import Agent
from agent_worker.turns.worker import Worker
from posthouse import bootstrap, bus, health, service
from posthouse.errors import Unavailable
from posthouse.rpc import RpcClient
from posthouse.settings import Settings

log = structlog.get_logger(__name__)


def worker_name() -> str:
    """Unique for each process, also when hosts or pids repeat: a lease names its owner."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"


class Application:
    """A worker's parts, put together and started in order, stopped in the other."""

    def __init__(self, settings: Settings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._stack = AsyncExitStack()
        self._name = worker_name()
        self._inbox: JetStreamInbox | None = None
        self._ready = False

    async def serve(self) -> None:
        """Work until ``stop`` is set; then hand over and return."""
        agent = Agent(
            llm=build_client(self._settings),
            tools=load_tools(self._settings),
            deadline_s=self._settings.budgets.deadline_s,
            token_budget=self._settings.budgets.tokens,
        )
        async with self._stack:
            self._stack.push_async_callback(agent.llm.aclose)
            await self._serve_health()
            await service.patiently(lambda: self._run(agent), self._stop)

    async def _serve_health(self) -> None:
        checks = health.Health()
        checks.add("worker", self._check)
        server = health.HealthServer(checks, self._settings.http_host, self._settings.health_port)
        await server.start()
        self._stack.push_async_callback(server.stop)

    async def _check(self) -> None:
        if not self._ready or self._inbox is None:
            raise Unavailable("starting")
        await self._inbox.refresh()

    async def _connect(self, name: str) -> Client:
        connection = await bus.connect(self._settings.nats_url, name, self._reconnected)
        self._stack.push_async_callback(connection.close)
        return connection

    async def _reconnected(self) -> None:
        log.info("nats.reconnected")
        if self._inbox is not None:
            await self._inbox.refresh()

    async def _run(self, agent: Agent) -> None:
        connection = await self._connect("worker")
        beats = await self._connect("worker-heartbeat")
        js = connection.jetstream()
        await bootstrap.check(js)
        inbox = self._inbox = JetStreamInbox(js)
        await inbox.refresh()
        publisher = JetStreamPublisher(connection)
        rpc = RpcClient(connection)
        api = RpcTurnApi(rpc, RpcClient(beats))
        outbox = Outbox(publisher)
        notices = Notices(api, publisher, outbox, self._name)
        commands = Commands(api, notices, publisher, self._settings.embedded)
        conversations = Conversations(numbers.OWNED_PER_SLOT * self._settings.slots)
        services = Services(
            name=self._name,
            settings=self._settings,
            api=api,
            inbox=inbox,
            publisher=publisher,
            event_log=JetStreamEvents(js),
            outbox=outbox,
            notices=notices,
            agent=agent,
            faults=Faults(),
            slots=asyncio.Semaphore(self._settings.slots),
            stopping=self._stop,
        )
        worker = Worker(services, conversations, commands)
        requests = AgentRequests(RpcCallApi(rpc), agent, self._name, numbers.AGENT_REQUESTS)
        heartbeat = Heartbeat(
            self._name, api, outbox, conversations, requests.calls, worker.hold, requests.cancel
        )

        async def on_hint(_: Msg) -> None:
            heartbeat.hint()

        await connection.subscribe("control.>", cb=on_hint)
        broker = bus.build_broker(self._settings.nats_url, "worker-agents")
        handlers.attach(broker, requests)
        await bus.start(broker)
        self._stack.push_async_callback(broker.stop)
        await self._work(worker, conversations, heartbeat)

    async def _work(
        self, worker: Worker, conversations: Conversations, heartbeat: Heartbeat
    ) -> None:
        beating = asyncio.create_task(heartbeat.run(), name="heartbeat")
        pulling = [
            asyncio.create_task(worker.pull_turns(), name="turns"),
            asyncio.create_task(worker.pull_commands(), name="commands"),
        ]
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        self._ready = True
        log.info("service.ready", worker=self._name)
        # A loop that ends by itself is a fault: leave, and be started anew.
        await asyncio.wait({beating, *pulling, stopped}, return_when=asyncio.FIRST_COMPLETED)
        self._ready = False
        self._stop.set()
        heartbeat.stopping = True
        for task in pulling:
            task.cancel()
        await asyncio.gather(*pulling, return_exceptions=True)
        await worker.settled(numbers.OPEN_PATIENCE_S)
        await conversations.hand_over(numbers.HANDOVER_S)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await heartbeat.beat()


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set."""
    await Application(settings, stop).serve()


def main() -> None:
    """Entry point."""
    service.run("agent-worker", serve)

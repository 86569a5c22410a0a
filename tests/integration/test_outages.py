"""NATS or Postgres away and back: services say what is missing, and mend themselves."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from posthouse.bootstrap import bootstrap
from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from posthouse.embedded.process import Server
from tests.support.cluster import Cluster, run_cluster
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats, crash, migrate, postgres_folder
from tests.support.wait import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

NAMED_WITHIN_S = 10.0
READY_WITHIN_S = 15.0
KEY = "im.web.outages"


class House:
    """All services as processes, and the servers below them."""

    def __init__(self, cluster: Cluster, nats: NatsServer, postgres: PostgresServer) -> None:
        self.cluster = cluster
        self.servers: dict[str, Server] = {"nats": nats, "postgres": postgres}
        self.nats_url = nats.url
        self.messages = 0

    async def start(self) -> None:
        """What the cluster does not start by itself."""
        for package in ("gateway", "scheduler", "agent_worker"):
            await self.cluster.start(package)

    async def readiness(self) -> dict[str, dict[str, str]]:
        """What is wrong, by service; a service that is ready is not in it."""
        found = {process.package: await _wrong(process) for process in self.cluster.processes}
        return {package: wrong for package, wrong in found.items() if wrong}

    async def all_ready(self) -> bool:
        return await self.readiness() == {}

    async def post(self) -> None:
        """A message by HTTP, which must be taken."""
        (gateway,) = [p for p in self.cluster.processes if p.package == "gateway"]
        self.messages += 1
        async with httpx.AsyncClient(base_url=gateway.health_url, timeout=10) as http:
            url = f"/api/conversations/{KEY.rpartition('.')[2]}/messages"
            reply = await http.post(url, json={"content": f"{self.messages}*2"})
        assert reply.status_code == 202, reply.text

    async def answers(self) -> None:
        """A message that is sent now gets its answer."""
        self.messages += 1
        await self.cluster.say(KEY, f"{self.messages}*2")
        found = await self.cluster.answered(KEY, self.messages, timeout_s=30)
        assert found[-1]["content"] == f"calculator → {self.messages * 2}"


async def _wrong(process: ServiceProcess) -> dict[str, str]:
    async with httpx.AsyncClient(timeout=5) as http:
        reply = await http.get(f"{process.health_url}/readyz")
    wrong = {name: said for name, said in reply.json()["checks"].items() if said != "ok"}
    assert reply.status_code == (503 if wrong else 200)
    return wrong


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """One for all outages: each leaves it as it was."""
    folder = tmp_path_factory.mktemp("outages")
    async with AsyncExitStack() as stack:
        nats = NatsServer(folder / "nats")
        postgres = PostgresServer(Path(stack.enter_context(postgres_folder())))
        for server in (nats, postgres):
            await server.start()
            stack.push_async_callback(server.stop)
        migrate(postgres.dsn)
        client = Nats(nats)
        stack.push_async_callback(client.close)
        await bootstrap(await client.jetstream(), ["web"])
        house = House(
            await stack.enter_async_context(run_cluster(client, postgres.dsn, folder)),
            nats,
            postgres,
        )
        await house.start()
        yield house


MEMORY_AWAY = "the memory service cannot be used"
OUTAGES = {
    ("nats",): {
        "memory": {"nats": "NATS is not connected at "},
        "gateway": {"nats": "NATS is not connected at "},
        "scheduler": {"nats": "NATS is not connected at "},
        "agent_worker": {"nats": "NATS is not connected at "},
    },
    ("postgres",): {
        "memory": {"postgres": "Postgres does not answer"},
        "gateway": {"memory": MEMORY_AWAY},
        "agent_worker": {"memory": MEMORY_AWAY},
    },
    ("nats", "postgres"): {
        "memory": {"nats": "NATS is not connected at ", "postgres": "Postgres does not answer"},
        "gateway": {"nats": "NATS is not connected at "},
        "scheduler": {"nats": "NATS is not connected at "},
        "agent_worker": {"nats": "NATS is not connected at "},
    },
}


@pytest.mark.parametrize("away", OUTAGES, ids="+".join)
async def test_an_outage_is_named_and_passes(house: House, away: tuple[str, ...]) -> None:
    await house.answers()
    pids = [process.pid for process in house.cluster.processes]
    for name in away:
        await crash(house.servers[name])

    async def named() -> bool:
        wrong = await house.readiness()
        assert set(wrong) == set(OUTAGES[away])
        for package, expected in OUTAGES[away].items():
            for check, words in expected.items():
                assert words in wrong[package].get(check, ""), wrong
        return True

    await eventually(named, NAMED_WITHIN_S)

    for name in away:
        await house.servers[name].start()
    await eventually(house.all_ready, READY_WITHIN_S)
    await house.answers()
    assert pids == [process.pid for process in house.cluster.processes]


async def test_a_message_of_the_outage_is_answered_afterwards(house: House) -> None:
    await crash(house.servers["postgres"])
    await house.post()
    await house.servers["postgres"].start()
    await house.cluster.answered(KEY, house.messages, timeout_s=40)
    await house.answers()

"""What the turns run on: servers, a model, a memory service and a worker, each a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from posthouse.bootstrap import bootstrap
from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from tests.bench.model import model
from tests.support.cluster import run_cluster
from tests.support.servers import Nats, create_template, fresh_database, postgres_folder


@dataclass(frozen=True)
class Servers:
    """Real servers, migrated and bootstrapped, and a directory for files."""

    nats: Nats
    postgres: PostgresServer
    dsn: str
    folder: Path

    @property
    def pids(self) -> dict[str, int]:
        """Process ids, by name."""
        return {"nats": self.nats.server.pid, "postgres": self.postgres.pid}


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """Both servers, ended in the end."""
    with postgres_folder() as folder:
        server, postgres = NatsServer(folder / "nats"), PostgresServer(folder / "postgres")
        nats = Nats(server)
        try:
            await server.start()
            await postgres.start()
            await create_template(postgres)
            await bootstrap(await nats.jetstream(), [])
            async with fresh_database(postgres) as dsn:
                yield Servers(nats, postgres, dsn, folder)
        finally:
            await nats.close()
            await server.stop()
            await postgres.stop()


@asynccontextmanager
async def services(below: Servers) -> AsyncIterator[dict[str, int]]:
    """Process ids, by name, of a memory service and a worker that asks the instant model."""
    async with model() as base_url:
        config = below.folder / "posthouse.yaml"
        config.write_text(yaml.safe_dump(_config(base_url)))
        async with run_cluster(
            below.nats, below.dsn, below.folder, POSTHOUSE_CONFIG=str(config)
        ) as cluster:
            memory, worker = *cluster.processes, await cluster.start("agent_worker")
            yield {"memory": memory.pid, "worker": worker.pid}


def _config(base_url: str) -> dict[str, object]:
    return {
        "providers": {"local": {"kind": "openai", "base_url": base_url, "models": ["instant"]}},
        "tiers": {tier: ["local/instant"] for tier in ("economy", "standard", "premium")},
    }

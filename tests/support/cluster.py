"""NATS, Postgres, memory and workers as real processes, and a bare client to talk to them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import orjson
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from posthouse import streams
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats
from tests.support.wait import eventually

COUNTER_TOOL = Path(__file__).parent.parent / "fixtures" / "tools"


class Cluster:
    """The agent side of Posthouse; ``database`` is its Postgres, ``nats`` its bus."""

    def __init__(self, nats: Nats, dsn: str, folder: Path, js: JetStreamContext) -> None:
        self.nats = nats
        self.dsn = dsn
        self.js = js
        self.folder = folder
        self.counter = folder / "counter.txt"
        self.environment = {
            "POSTHOUSE_NATS_URL": nats.url,
            "POSTHOUSE_POSTGRES_DSN": dsn,
            "POSTHOUSE_EMBEDDED": "true",
            "POSTHOUSE_TOOLS_PATH": json.dumps([str(COUNTER_TOOL)]),
            "POSTHOUSE_TEST_COUNTER_FILE": str(self.counter),
        }
        self.processes: list[ServiceProcess] = []

    async def start(self, package: str, **environment: str) -> ServiceProcess:
        """Start a service and wait until it is ready."""
        process = ServiceProcess(package, self.environment | environment, self.folder)
        self.processes.append(process)
        return await process.start()

    async def say(self, key: str, content: str, id: str | None = None) -> None:
        """Publish a message as `nats pub` would."""
        body: dict[str, Any] = {"content": content}
        if id is not None:
            body["id"] = id
        await self.js.publish(f"inbound.{key}", orjson.dumps(body))

    async def outbound(self, key: str) -> list[dict[str, Any]]:
        """Everything on the outbound subject of a conversation, in stream order."""
        return [body for _, body in await self.messages(streams.OUTBOUND, f"outbound.{key}")]

    async def messages(
        self, stream: str, subject: str
    ) -> list[tuple[dict[str, str], dict[str, Any]]]:
        """(headers, body) of the messages on a subject, read from the stream itself."""
        found: list[tuple[dict[str, str], dict[str, Any]]] = []
        seq = 1
        while True:
            try:
                raw = await self.js.get_msg(stream, seq=seq, subject=subject, next=True)
            except NotFoundError:
                return found
            data = raw.data or b""
            try:
                body = orjson.loads(data)
            except ValueError:
                body = {"raw": data}
            found.append((dict(raw.headers or {}), body))
            seq = (raw.seq or 0) + 1

    async def answered(
        self, key: str, count: int = 1, timeout_s: float = 20.0
    ) -> list[dict[str, Any]]:
        """Wait for ``count`` outbound messages of a conversation."""

        async def enough() -> list[dict[str, Any]] | None:
            found = await self.outbound(key)
            return found if len(found) >= count else None

        found: list[dict[str, Any]] = await eventually(
            enough, timeout_s, f"{count} answers in {key}"
        )
        return found

    async def rows(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        """Read from Postgres."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(query, *arguments)
        finally:
            await connection.close()

    def counted(self) -> list[str]:
        """Lines that the counter tool wrote."""
        return self.counter.read_text().splitlines() if self.counter.exists() else []


@asynccontextmanager
async def run_cluster(
    nats: Nats, dsn: str, folder: Path, **environment: str
) -> AsyncIterator[Cluster]:
    """A cluster with one memory service; workers are started by the test."""
    cluster = Cluster(nats, dsn, folder, await nats.jetstream())
    cluster.environment |= environment
    try:
        await cluster.start("memory")
        yield cluster
    finally:
        # All at once, but memory last, since the others still talk to it.
        ended: list[int | BaseException] = []
        for last in (False, True):
            due = [p.stop() for p in cluster.processes if (p.package == "memory") is last]
            ended += await asyncio.gather(*due, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

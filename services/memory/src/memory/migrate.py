"""Brings the database to the schema of this version: ``python -m memory migrate``."""

import asyncio
from importlib.resources import files
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import AdaptedConnection, Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from posthouse.errors import PermanentError, Unavailable

# Two migrations at once: the second waits here and then has nothing to do.
LOCK_NUMBER = 7_031_001


def engine_url(dsn: str) -> str:
    """A Postgres DSN in SQLAlchemy's form, with asyncpg as driver."""
    scheme, _, rest = dsn.partition("://")
    if scheme not in ("postgres", "postgresql"):
        raise PermanentError("postgres_dsn must start with postgresql://")
    return f"postgresql+asyncpg://{rest}"


def script(connection: Connection, name: str) -> None:
    """Run a file of ``memory/sql``, or all of a folder by name, in the migration's transaction."""
    path = files("memory").joinpath("sql", name)
    parts = sorted(path.iterdir(), key=lambda part: part.name) if path.is_dir() else [path]
    source = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    adapted = connection.connection.dbapi_connection
    if not isinstance(adapted, AdaptedConnection):
        raise PermanentError("the migration needs the asyncpg driver")
    # The driver's own execute takes many statements at once; prepared ones do not.
    adapted.run_async(lambda driver: driver.execute(source))


def _upgrade(connection: Connection) -> None:
    connection.execute(text("select pg_advisory_xact_lock(:n)"), {"n": LOCK_NUMBER})
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def migrate(dsn: str) -> None:
    """Upgrade to the head revision, in one transaction. Raises Unavailable, PermanentError."""
    engine = create_async_engine(engine_url(dsn), connect_args={"timeout": 10})
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade)
    except DBAPIError as error:
        raise PermanentError(f"the migration failed: {error.orig}") from error
    except (OSError, TimeoutError, asyncpg.CannotConnectNowError) as error:
        raise Unavailable(f"Postgres does not answer: {error}") from error
    finally:
        await engine.dispose()


def main(dsn: str) -> None:
    """Run ``migrate`` to its end."""
    asyncio.run(migrate(dsn))

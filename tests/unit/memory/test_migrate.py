"""Migrations: one line of revisions, and what the service asks for is its end."""

from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import memory
from memory.migrate import engine_url, migrate
from memory.migrations import HEAD
from posthouse.embedded.ports import free_port
from posthouse.errors import PermanentError, Unavailable


def test_the_service_needs_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(memory.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_dsn_in_the_form_of_sqlalchemy(scheme: str) -> None:
    assert engine_url(f"{scheme}://me:pw@host:1/db") == "postgresql+asyncpg://me:pw@host:1/db"


@pytest.mark.parametrize("dsn", ["", "mysql://host/db", "host:5432"])
def test_another_dsn_is_refused(dsn: str) -> None:
    with pytest.raises(PermanentError, match="postgres_dsn"):
        engine_url(dsn)


async def test_no_server_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await migrate(f"postgresql://postgres@127.0.0.1:{free_port()}/posthouse")

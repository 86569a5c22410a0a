"""What the service serves, and what it costs to start it."""

import subprocess
import sys

import pytest

from memory.handlers import build_server
from posthouse.rpc import Raw
from posthouse.settings import MemorySettings


class NoDatabase:
    """Never called."""

    async def call(self, function: str, *arguments: object) -> Raw:
        """Run a function."""
        raise AssertionError(function)

    async def beat(self, *arguments: object) -> Raw:
        """Run the heartbeat."""
        raise AssertionError("heartbeat")


def test_every_method_has_its_subject() -> None:
    served = build_server(NoDatabase(), MemorySettings()).methods
    turn = "open admit begin record emit notify commit release control heartbeat read"
    call = "open record finish cancel release"
    wanted = {f"memory.turn.{verb}" for verb in turn.split()}
    wanted |= {f"memory.call.{verb}" for verb in call.split()}
    wanted |= {"memory.history.recall", "memory.delivery.missing"}
    assert served.keys() == wanted


@pytest.mark.parametrize("module", ["alembic", "sqlalchemy", "sqlmodel"])
def test_serving_does_not_import_what_only_migrations_need(module: str) -> None:
    """Half of the start would be theirs (measured)."""
    code = f"import sys, memory.main; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_unknown_argument_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memory", "dance"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: python -m memory [migrate]" in done.stderr

"""``posthouse send`` to the real system."""

from collections.abc import AsyncIterator

import pytest

from posthouse.texts import catalogue
from tests.support.stack import Up, run_cli, stack

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def up() -> AsyncIterator[Up]:
    async with stack() as running:
        await running.start("--workers", "1")
        yield running


async def test_questions_commands_and_conversations(up: Up) -> None:
    where = ("--data-dir", str(up.data_dir))
    answer = await run_cli("send", "17*23+4 等于多少", *where)
    assert (answer.code, answer.err) == (0, "")
    assert "395" in answer.out

    help_ = await run_cli("send", "/help", *where)
    assert help_.code == 0
    assert "/stop" in help_.out

    idle = await run_cli("send", "/status", *where)
    assert idle.code == 0
    assert idle.out.strip() in catalogue()["status_idle"].values()

    other = await run_cli("send", "what did I say last?", "--as", "im://cli/ada", *where)
    assert other.code == 0
    assert "17*23+4" not in other.out

    stored = await run_cli("send", "2+2", "--wait", "0", *where)
    assert stored.out.startswith("cli::")

    by_url = await run_cli("send", "6*7", env={"POSTHOUSE_NATS_URL": up.ready()["nats_url"]})
    assert (by_url.code, by_url.err) == (0, "")
    assert "42" in by_url.out

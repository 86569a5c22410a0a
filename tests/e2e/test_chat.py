"""``posthouse chat`` as a person sees it: a real terminal, the real system."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.cluster import COUNTER_TOOL
from tests.support.stack import Up, stack
from tests.support.terminal import CTRL_C, CTRL_D, ENTER, Terminal

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """One system for all tests of this file: each takes a conversation of its own."""
    env = {
        "POSTHOUSE_TOOLS_PATH": json.dumps([str(COUNTER_TOOL)]),
        "POSTHOUSE_TEST_COUNTER_FILE": str(tmp_path_factory.mktemp("counter") / "counter.txt"),
    }
    async with stack(env) as running:
        await running.start("--workers", "1")
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def chat(up: Up, tmp_path: Path) -> AsyncIterator[Callable[..., Terminal]]:
    """Opens chats of the conversation that it is given."""
    opened: list[Terminal] = []

    def open_(name: str, **env: str) -> Terminal:
        where = ("--data-dir", str(up.data_dir), "--as", f"im://cli/{name}")
        environment = {"XDG_STATE_HOME": str(tmp_path), **env}
        opened.append(Terminal("chat", *where, env=environment))
        return opened[-1]

    yield open_
    for terminal in opened:
        await terminal.close()


Chat = Callable[..., Terminal]


async def test_a_question_is_answered_once_and_ctrl_d_leaves(chat: Chat) -> None:
    terminal = chat("question")
    await terminal.ready()
    terminal.type("17*23+4 等于多少" + ENTER)
    await terminal.says("calculator → 395")
    await terminal.ready()
    assert terminal.text.count("395") == 1
    assert "you> 17*23+4 等于多少" in terminal.rows
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0


async def test_a_long_turn_is_stopped(chat: Chat) -> None:
    terminal = chat("stop")
    await terminal.ready()
    terminal.type('!tool count {"name": "slow", "seconds": 60}' + ENTER)
    await terminal.says("> ⏳ count: slow")
    await terminal.ready()
    terminal.type("/stop" + ENTER)
    await terminal.says("Agent was cancelled.")
    await terminal.says("Stopped.")
    await terminal.ready()
    terminal.type(CTRL_C)
    await terminal.says("Ctrl-D leaves.\n")
    terminal.type(CTRL_C)
    assert await terminal.ended() == 0

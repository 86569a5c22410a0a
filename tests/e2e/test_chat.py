"""``posthouse chat`` as a person sees it: a real terminal, the real system."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from posthouse.texts import catalogue
from tests.support.cluster import COUNTER_TOOL
from tests.support.stack import Up, run_cli, stack
from tests.support.terminal import (
    BACKSPACE,
    CTRL_C,
    CTRL_D,
    ENTER,
    PASTE_BEGIN,
    PASTE_END,
    UP,
    Terminal,
)

Chat = Callable[..., Terminal]
SLOW = '!tool count {"name": "slow", "seconds": 60}'

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
async def chat(up: Up, tmp_path: Path) -> AsyncIterator[Chat]:
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


async def test_a_question_is_answered_once_and_ctrl_d_leaves(chat: Chat) -> None:
    terminal = chat("question")
    await terminal.ready()
    terminal.type("17*23+4 等于多少" + ENTER)
    await terminal.says("calculator → 395")
    await terminal.ready()
    assert terminal.text.count("calculator → 395") == 1
    assert "you> 17*23+4 等于多少" in terminal.rows
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0


async def test_a_long_turn_is_stopped_by_command(chat: Chat) -> None:
    terminal = chat("stop")
    await terminal.ready()
    terminal.type(SLOW + ENTER)
    await terminal.says("> ⏳ count: slow")
    terminal.type("/stop" + ENTER)
    await terminal.says("Agent was cancelled.")
    await terminal.says("Stopped.")
    await terminal.ready()


async def test_ctrl_c_stops_a_turn_clears_a_line_and_leaves(chat: Chat) -> None:
    terminal = chat("ctrl-c")
    await terminal.ready()
    terminal.type(SLOW + ENTER)
    await terminal.says("> ⏳ count: slow")
    terminal.type("half a line")
    await terminal.ready("you> half a line")
    terminal.type(CTRL_C)
    await terminal.ready()
    terminal.type(CTRL_C)
    await terminal.says("Asked the agent to stop.")
    await terminal.says("Agent was cancelled.")
    await terminal.says("Stopped.")
    await terminal.ready()
    terminal.type(CTRL_C)
    await terminal.until(lambda: terminal.rows[-2:] == ["Ctrl-D leaves.", "you>"], "the hint")
    terminal.type(CTRL_C)
    assert await terminal.ended() == 0


async def test_chinese_is_typed_edited_and_found_again(chat: Chat) -> None:
    first = chat("chinese", LANG="zh_CN.UTF-8")
    await first.ready("你>")
    assert "Ctrl-D 退出" in first.text
    first.type("现在几点中文" + BACKSPACE * 2)
    await first.ready("你> 现在几点")
    first.type(ENTER)
    await first.says("current_time → ")
    await first.ready("你>")
    answer = first.rows[-2]
    first.type("/exit" + ENTER)
    assert await first.ended() == 0

    second = chat("chinese", LANG="zh_CN.UTF-8")
    await second.until(lambda: second.rows[1:] == ["你> 现在几点", answer, "你>"], "the history")
    second.type("/history 1" + ENTER)
    await second.says(f"/history 1\n{answer}\n你>")

    def first_line_is_back() -> bool:
        second.type(UP)  # again: it does nothing before the file is read, or at its first line
        return second.rows[-1] == "你> 现在几点"

    await second.until(first_line_is_back, "what was typed first")


async def test_pasted_lines_are_one_message(chat: Chat) -> None:
    terminal = chat("paste")
    await terminal.ready()
    terminal.type(f"{PASTE_BEGIN}第一行\r\n第二行{PASTE_END}")
    await terminal.says("第二行")
    terminal.type(ENTER)
    await terminal.says("离线模式")
    terminal.type("what did I say last?" + ENTER)
    await terminal.until(lambda: terminal.text.count("第二行") == 2, "both lines, said once")


async def test_two_terminals_see_each_other(chat: Chat) -> None:
    ada, ben = chat("shared"), chat("shared")
    await ada.ready()
    await ben.ready()
    ada.type("6*7" + ENTER)
    for terminal in (ada, ben):
        await terminal.says("calculator → 42")
        await terminal.ready()
        assert terminal.text.count("calculator → 42") == 1
    assert "shared> 6*7" in ben.rows
    assert "shared> 6*7" not in ada.rows


async def test_a_wider_window_keeps_the_prompt(chat: Chat) -> None:
    terminal = chat("resize")
    await terminal.ready()
    terminal.resize(100, 40)
    terminal.type("6*7" + ENTER)
    await terminal.says("calculator → 42\nyou>")


async def test_lines_from_a_pipe_are_answered_in_order(up: Up) -> None:
    where = ("--data-dir", str(up.data_dir), "--as", "im://cli/pipe")
    lines = "17*23+4 等于多少\n\nwhat did I say last?\n/status\n/exit\nnever said\n"
    result = await run_cli("chat", *where, input=lines)
    assert (result.code, result.err) == (0, "")
    first, second, third = result.out.splitlines()
    assert first == "calculator → 395"
    assert "17*23+4 等于多少" in second
    assert third in catalogue()["status_idle"].values()

    seen = await run_cli("events", *where, "--from", "start", "--json", "--until-final")
    assert (seen.code, seen.err) == (0, "")
    told = [json.loads(line) for line in seen.out.splitlines()]
    assert {entry["conversation"] for entry in told} == {"im.cli.pipe"}
    assert [entry["event"]["seq"] for entry in told] == [*range(1, len(told) + 1)]
    assert told[-1]["event"]["payload"]["answer"] == "calculator → 395"

"""``posthouse chat`` in a terminal, on a real server; the test plays the agent."""

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from posthouse import events, streams
from tests.support.agent import LOCAL, PlayedAgent
from tests.support.publisher import EventPublisher
from tests.support.servers import Nats, crash
from tests.support.terminal import CTRL_C, CTRL_D, ENTER, Terminal

COLOUR = re.compile(rb"\x1b\[[0-9;]*\b(3|9)[0-9;]+m")
OpenChat = Callable[..., Terminal]


@pytest.fixture
def agent(bus: Nats) -> PlayedAgent:
    return PlayedAgent(bus)


@pytest.fixture
async def chat(agent: PlayedAgent, tmp_path: Path) -> AsyncIterator[OpenChat]:
    """Opens chats of the default conversation."""
    opened: list[Terminal] = []

    def open_(**env: str) -> Terminal:
        opened.append(Terminal("chat", env={**agent.env, "XDG_STATE_HOME": str(tmp_path), **env}))
        return opened[-1]

    yield open_
    for terminal in opened:
        await terminal.close()


async def test_text_streams_and_the_answer_is_there_once(
    chat: OpenChat, agent: PlayedAgent, bus: Nats
) -> None:
    terminal = chat()
    await terminal.says("Earlier messages cannot be shown now.")
    await terminal.ready()
    terminal.type("天气怎么样" + ENTER)
    await terminal.says("> 💭 thinking...")
    message = await agent.hear()
    turn = EventPublisher(await bus.jetstream(), LOCAL, "w1")
    await turn.publish(events.WORKFLOW_ACCEPTED, message_ids=[message.id])
    await turn.publish(events.PROGRESS_UPDATED, lines=["> ⏳ weather ..."])
    await terminal.says("> ⏳ weather ...\nyou>")
    await turn.delta("今天")
    await terminal.says("> ⏳ weather ...\n今天\nyou>")
    await turn.delta("晴。")
    await terminal.says("今天晴。\nyou>")
    terminal.type("typed meanwhile")
    await turn.publish(events.PROGRESS_UPDATED, lines=["> ✅ weather (1.0s)"])
    await turn.publish(events.WORKFLOW_COMPLETED, final=True, answer="今天晴。 25 度。")
    await terminal.says("今天晴。 25 度。\nyou> typed meanwhile")
    await agent.say("今天晴。 25 度。", message.id)
    await terminal.until(
        lambda: (
            terminal.rows[-4:]
            == [
                "you> 天气怎么样",
                "> ✅ weather (1.0s)",
                "今天晴。 25 度。",
                "you> typed meanwhile",
            ]
        ),
        "the answer once, and the prompt below",
    )
    terminal.type(CTRL_C)
    await terminal.ready()
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0


async def test_an_answer_and_a_stranger_command_no_terminal(
    chat: OpenChat, agent: PlayedAgent, bus: Nats
) -> None:
    terminal = chat()
    await terminal.ready()
    await agent.say("\x1b]0;owned\x07\x1b[2J\x1b[5;5Hgone?\x9b2K\u202etxt", "other")
    await terminal.says("␛]0;owned␇␛[2J␛[5;5Hgone?\ufffd2K\ufffdtxt")
    js = await bus.jetstream()
    await js.publish("inbound.im.cli.local", b'{"content": "hi\\u001b[2J", "sender_name": "Ada"}')
    await terminal.says("Ada> hi␛[2J")
    assert "im://cli/local. /help shows the commands" in terminal.text
    assert terminal.title == ""


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_no_color_is_respected(
    chat: OpenChat, agent: PlayedAgent, env: dict[str, str], coloured: bool
) -> None:
    terminal = chat(**env)
    await terminal.ready()
    await agent.say("Idle.", "other", kind="notice")
    await terminal.says("Idle.")
    assert bool(COLOUR.search(terminal.raw)) == coloured


async def test_without_a_cursor_there_are_lines_and_answers(
    chat: OpenChat, agent: PlayedAgent
) -> None:
    terminal = chat(TERM="dumb")
    terminal.type("你好" + ENTER)
    message = await agent.hear()
    await agent.say("你好！", message.id)
    await terminal.says("你好\n你好！")
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0
    assert b"\x1b" not in terminal.raw


async def test_a_message_typed_while_the_bus_is_away_is_sent_later(
    chat: OpenChat, agent: PlayedAgent, bus: Nats
) -> None:
    terminal = chat()
    await terminal.ready()
    await crash(bus.server)
    await terminal.says("The connection is lost.")
    terminal.type("still there?" + ENTER)
    await terminal.says("> 💭 thinking...")
    await bus.server.start()
    await terminal.says("The connection is back.")
    message = await agent.hear()
    await agent.say("yes", message.id)
    await terminal.says("you> still there?")
    await terminal.says("\nyes\nyou>")
    assert terminal.text.count("The connection is lost.") == 1


async def test_leaving_while_the_bus_is_away_says_what_was_not_sent(
    chat: OpenChat, bus: Nats
) -> None:
    terminal = chat()
    await terminal.ready()
    await crash(bus.server)
    await terminal.says("The connection is lost.")
    terminal.type("你还在吗" + ENTER)
    await terminal.says("> 💭 thinking...")
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0
    assert "Not sent: 你还在吗" in terminal.text


async def test_a_refused_message_comes_back_to_be_edited(chat: OpenChat, bus: Nats) -> None:
    terminal = chat()
    await terminal.ready()
    await (await bus.jetstream()).delete_stream(streams.INBOUND)
    terminal.type("hello" + ENTER)
    await terminal.says("Not sent: this bus has no Posthouse streams; run `posthouse bootstrap`")
    await terminal.ready("you> hello")

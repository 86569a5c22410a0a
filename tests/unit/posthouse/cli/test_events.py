"""``posthouse events`` on a real server; the test plays the workers."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from posthouse import events
from posthouse.address import Address
from posthouse.cli.events import json_line, text_line
from posthouse.events import StreamEvent
from posthouse.feed import Arrived, Place
from tests.support.agent import LOCAL
from tests.support.publisher import EventPublisher
from tests.support.servers import Nats, crash
from tests.support.stack import Result, run_cli
from tests.support.terminal import CTRL_C, Terminal
from tests.support.wait import eventually
from tests.unit.posthouse.strategies import json_values, texts


def arrived(payload: Any = None, event_type: str = "text.delta") -> Arrived:
    """An event as the feed hands it out."""
    event = StreamEvent(
        event_id="e",
        workflow_id="0123456789abcdef",
        seq=7,
        event_type=event_type,
        timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        payload=payload,
    )
    return Arrived(Place(1764500000000, 42), "im.cli.local", event)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (None, ""),
        ({"text": "你好 there", "iteration": 1}, 'text="你好 there" iteration=1'),
        ({"agent": "main", "error": None, "lines": []}, "agent=main"),
        ({"text": "\x1b[2J\n"}, 'text="\\u001b[2J\\n"'),
        ({"text": "\u202e"}, 'text="\\u202e"'),
        ("plain", "plain"),
        ({"text": "x" * 200}, f"text={'x' * 114}…"),
    ],
)
def test_an_event_is_one_line(payload: Any, shown: str) -> None:
    line = text_line(arrived(payload), with_conversation=False)
    assert line.split(maxsplit=4)[1:4] == ["89abcdef", "7", "text.delta"]
    assert line.partition("text.delta")[2].strip() == shown


def test_the_conversation_is_named_beside_others() -> None:
    assert "  im.cli.local  89abcdef  " in text_line(arrived(), with_conversation=True)


@given(json_values, texts)
def test_any_event_is_one_harmless_line(payload: Any, event_type: str) -> None:
    one = arrived(payload, event_type)
    for line in (text_line(one, with_conversation=True), json_line(one)):
        assert line.splitlines() == [line]
        assert "\x1b" not in line


def test_json_has_all_of_it() -> None:
    told = json.loads(json_line(arrived({"text": "\x9b你好"})))
    assert told["id"] == "1764500000000-42"
    assert told["conversation"] == "im.cli.local"
    assert told["event"]["payload"] == {"text": "\x9b你好"}
    assert told["event"]["timestamp"] == "2026-01-02T03:04:05Z"


class Follower:
    """``posthouse events`` in the environment of a test."""

    def __init__(self, bus: Nats) -> None:
        self.env = {"POSTHOUSE_NATS_URL": bus.url}

    async def run(self, *args: str) -> Result:
        """Run it to its end."""
        return await run_cli("events", *args, env=self.env)


@pytest.fixture
def follower(bus: Nats) -> Follower:
    return Follower(bus)


async def test_it_begins_where_it_is_told_and_ends_with_the_final_event(
    follower: Follower, bus: Nats
) -> None:
    js = await bus.jetstream()
    ada = EventPublisher(js, Address.im("cli", "ada"), "w0")
    turn = EventPublisher(js, LOCAL, "w1")
    await ada.delta("not here")
    await turn.delta("one")
    await turn.delta("two")
    await turn.publish(events.WORKFLOW_COMPLETED, final=True, answer="two")

    all_of_it = await follower.run("--from", "start", "--until-final")
    assert (all_of_it.code, all_of_it.err) == (0, "")
    assert [line.split()[2:4] for line in all_of_it.out.splitlines()] == [
        ["1", "text.delta"],
        ["2", "text.delta"],
        ["3", "workflow.completed"],
    ]
    everywhere = await follower.run("--all", "--from", "start", "--until-final", "--json")
    first, second, *_ = (json.loads(line) for line in everywhere.out.splitlines())
    assert [first["conversation"], second["conversation"]] == ["im.cli.ada", "im.cli.local"]
    rest = await follower.run("--from", second["id"], "--until-final", "--json")
    assert [json.loads(line)["event"]["seq"] for line in rest.out.splitlines()] == [2, 3]


async def test_it_outlives_the_bus_and_ctrl_c_is_a_good_end(follower: Follower, bus: Nats) -> None:
    terminal = Terminal("events", "--from", "start", env=follower.env)
    try:
        await EventPublisher(await bus.jetstream(), LOCAL, "before").delta("one")
        await terminal.says("text=one")
        await crash(bus.server)
        await terminal.says("the connection to NATS is lost")
        await bus.server.start()
        await terminal.says("the connection to NATS is back")
        await run_cli("bootstrap", env=follower.env)  # EVENTS is in memory
        await EventPublisher(await bus.jetstream(), LOCAL, "after").delta("two")
        await terminal.says("text=two")
        assert terminal.text.count("text=one") == 1
        terminal.type(CTRL_C)
        assert await terminal.ended() == 0
        assert "Traceback" not in terminal.text
    finally:
        await terminal.close()


async def test_a_reader_that_has_enough_ends_it_quietly(follower: Follower, bus: Nats) -> None:
    turn = EventPublisher(await bus.jetstream(), LOCAL, "w1")
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        'set -o pipefail; "$0" -m posthouse events --from start | head -1',
        sys.executable,
        env={**os.environ, **follower.env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    ended = asyncio.create_task(shell.communicate())

    async def told_enough() -> bool:
        await turn.delta("x")  # only a line that nobody takes tells it
        return ended.done()

    await eventually(told_enough, 60, "the end of the pipe")
    out, err = await ended
    assert (shell.returncode, out.count(b"\n"), err) == (0, 1, b"")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--from", "yesterday"), "write start, new or an id"),
        (("--as", "local"), "is no address"),
        (("--as", "agent://main"), "is no chat"),
        (("--as", "im://cli/x", "--all"), "name a conversation or ask for all"),
    ],
)
async def test_wrong_use_is_explained(args: tuple[str, ...], words: str) -> None:
    result = await run_cli("events", *args)
    assert (result.code, result.out) == (2, "")
    assert words in " ".join(result.err.replace("│", " ").split())

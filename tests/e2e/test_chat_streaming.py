"""``posthouse chat`` while a real model speaks: what a person sees of it, word by word."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, run_cluster
from tests.support.model_server import DONE, ModelServer, delta, serving, stream, tool_call
from tests.support.servers import Nats
from tests.support.terminal import CTRL_C, ENTER, Terminal

pytestmark = pytest.mark.timeout(180)

LINES = [f"第{number}行 line {number}\n" for number in range(1, 61)]
TEXT = "".join(LINES).strip()


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def cluster(
    bus: Nats, database: str, tmp_path: Path, model: ModelServer
) -> AsyncIterator[Cluster]:
    """Memory; the workers that a test starts ask the model of the test."""
    provider = {"kind": "openai", "base_url": model.base_url}
    config = tmp_path / "posthouse.yaml"
    config.write_text(
        json.dumps({"providers": {"mine": provider}, "tiers": {"standard": ["mine/scripted"]}})
    )
    environment = {"POSTHOUSE_CONFIG": str(config), "POSTHOUSE_MEMORY__LEASE_TTL_S": "3"}
    async with run_cluster(bus, database, tmp_path, **environment) as running:
        yield running


@pytest.fixture
async def terminal(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Terminal]:
    """A chat, ready to be typed into."""
    env = {"POSTHOUSE_NATS_URL": cluster.nats.url, "XDG_STATE_HOME": str(tmp_path)}
    opened = Terminal("chat", env=env)
    await opened.ready()
    yield opened
    await opened.close()


async def test_text_grows_on_the_screen_and_stands_there_once(
    cluster: Cluster, model: ModelServer, terminal: Terminal
) -> None:
    await cluster.start("agent_worker")
    half, rest = asyncio.Event(), asyncio.Event()
    model.will(
        stream(delta("我数一下。"), *tool_call("count", '{"name": "茶"}'), DONE),
        stream(
            *(delta(line) for line in LINES[:3]),
            half,
            *(delta(line) for line in LINES[3:40]),
            rest,
            *(delta(line) for line in LINES[40:]),
            delta(finish="stop"),
            DONE,
        ),
    )
    terminal.type("数一下茶" + ENTER)
    await terminal.says("第3行 line 3\n")
    assert "> ✅ count: 茶" in terminal.text
    assert terminal.rows[-1] == "you>"

    half.set()
    await terminal.says("第40行 line 40\n")
    terminal.type("下一个")
    await terminal.ready("you> 下一个")

    rest.set()
    shown = [*TEXT.split("\n"), "you> 下一个"]
    await terminal.until(lambda: terminal.rows == shown[-len(terminal.rows) :], "the whole answer")
    assert len(terminal.rows) == 40


async def test_text_of_a_lost_worker_is_not_shown_twice(
    cluster: Cluster, model: ModelServer, terminal: Terminal
) -> None:
    first = await cluster.start("agent_worker")
    never = asyncio.Event()
    model.will(
        stream(delta("one "), delta("two "), never),
        stream(delta("one "), delta("two "), delta("three"), delta(finish="stop"), DONE),
    )
    terminal.type("count" + ENTER)
    await terminal.says("one two")
    await cluster.start("agent_worker")
    await first.kill()
    await terminal.says("one two three\nyou>", timeout_s=60)
    assert terminal.text.count("one") == 1
    never.set()


async def test_ctrl_c_ends_a_model_that_does_not_stop_speaking(
    cluster: Cluster, model: ModelServer, terminal: Terminal
) -> None:
    await cluster.start("agent_worker")
    never = asyncio.Event()
    model.will(stream(delta("without "), delta("an end "), never))
    terminal.type("speak" + ENTER)
    await terminal.says("without an end")
    terminal.type(CTRL_C)
    await terminal.says("Stopped.")
    await terminal.says("Agent was cancelled.")
    await terminal.ready()
    never.set()

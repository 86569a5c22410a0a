"""Streaming from a model to readers of two gateways, whatever dies on the way."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from posthouse import events
from tests.support.cluster import Cluster, run_cluster
from tests.support.model_server import (
    DONE,
    Answer,
    ModelServer,
    Part,
    data,
    delta,
    refusal,
    serving,
    stream,
    tool_call,
)
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats
from tests.support.sse import Listener
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(180)

PIECES = [f"第{number}段 🙂, part {number}. " for number in range(1, 41)]
TEXT = "".join(PIECES)
HALF = "".join(PIECES[:20])
USAGE = data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 9}})


class Front(NamedTuple):
    """Two gateways, and a model that is told what to say."""

    cluster: Cluster
    model: ModelServer
    gateways: Sequence[ServiceProcess]

    async def post(self, content: str, conversation: str = "demo") -> None:
        """Say something, at the first gateway."""
        url = f"{self.gateways[0].health_url}/api/conversations/{conversation}/messages"
        async with httpx.AsyncClient() as http:
            assert (await http.post(url, json={"content": content})).status_code == 202

    async def history(self, conversation: str = "demo") -> list[dict[str, object]]:
        """What the conversation says, read at the other gateway."""
        url = f"{self.gateways[1].health_url}/api/conversations/{conversation}/messages"
        async with httpx.AsyncClient() as http:
            found = (await http.get(url)).json()["messages"]
        return [entry["message"] for entry in found]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def front(
    bus: Nats, database: str, tmp_path: Path, model: ModelServer
) -> AsyncIterator[Front]:
    """All but the workers."""
    config = tmp_path / "posthouse.yaml"
    provider = {"kind": "openai", "base_url": model.base_url, "api_key_env": "TEST_MODEL_KEY"}
    config.write_text(
        json.dumps({"providers": {"mine": provider}, "tiers": {"standard": ["mine/scripted"]}})
    )
    environment = {"POSTHOUSE_CONFIG": str(config), "TEST_MODEL_KEY": "right"}
    async with run_cluster(bus, database, tmp_path, **environment) as cluster:
        gateways = await asyncio.gather(*(cluster.start("gateway") for _ in range(2)))
        yield Front(cluster, model, gateways)


@pytest.fixture
async def listeners(front: Front) -> AsyncIterator[list[Listener]]:
    """One reader at each gateway."""
    async with AsyncExitStack() as stack:
        found = []
        for gateway in front.gateways:
            listener = Listener("demo")
            await listener.connect(gateway.health_url)
            stack.push_async_callback(listener.hang_up)
            found.append(listener)
        yield found


def uses_a_tool(*text: Part) -> list[Answer]:
    """Answers of a model that counts first, and then speaks."""
    call = tool_call("count", json.dumps({"name": "茶"}, ensure_ascii=False))
    return [
        stream(delta("我数一下。"), *call, USAGE, DONE),
        stream(*text, delta(finish="stop"), USAGE, DONE),
    ]


def deltas(pieces: list[str]) -> list[bytes]:
    return [delta(piece) for piece in pieces]


def check_feed(listener: Listener) -> None:
    """Numbers without a gap, ids that rise, and one end."""
    assert [sent.event.seq for sent in listener.sent] == list(range(1, len(listener.sent) + 1))
    places = [tuple(map(int, sent.id.split("-"))) for sent in listener.sent]
    assert places == sorted(set(places))
    assert [sent.event.final for sent in listener.sent].count(True) == 1
    assert listener.sent[-1].event.final
    assert all(sent.event_type == sent.event.event_type for sent in listener.sent)


async def test_two_readers_see_all_of_it_and_one_changes_over(
    front: Front, listeners: list[Listener]
) -> None:
    await front.cluster.start("agent_worker")
    more = asyncio.Event()
    front.model.will(*uses_a_tool(*deltas(PIECES[:20]), more, *deltas(PIECES[20:])))
    steady, moving = listeners

    await front.post("数一下茶")
    for listener in listeners:
        await listener.shows(HALF)
    await moving.hang_up()
    more.set()
    turn = await steady.turn()
    await moving.connect(front.gateways[0].health_url)
    await moving.turn()

    for listener in listeners:
        check_feed(listener)
    assert moving.sent == steady.sent
    assert (turn.text, turn.answer, turn.error) == (TEXT, TEXT.strip(), None)
    kinds = [sent.event_type for sent in steady.sent]
    assert kinds.index(events.TOOL_FINISHED) > kinds.index(events.TOOL_STARTED)
    assert [line.split()[2] for line in front.cluster.counted()] == ["started", "finished"]
    said = await front.history()
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant"]
    assert said[-1]["content"] == TEXT
    asked = front.model.bodies[1]["messages"]
    assert asked[-1]["content"] == "counted 茶"
    assert asked[-1]["tool_call_id"] == asked[-2]["tool_calls"][0]["id"]


async def test_a_worker_that_dies_in_mid_stream_leaves_no_trace_in_the_text(
    front: Front, listeners: list[Listener]
) -> None:
    first = await front.cluster.start("agent_worker")
    never = asyncio.Event()
    lost = ["This is ", "lost with its worker. ", *PIECES[:5]]
    count, answer = uses_a_tool(*deltas(PIECES))
    front.model.will(count, stream(*deltas(lost), never), answer)

    await front.post("数一下茶")
    for listener in listeners:
        await listener.shows("".join(lost))
    await front.cluster.start("agent_worker")
    await first.kill()
    steady, moving = listeners
    await moving.hang_up()
    turn = await steady.turn(60)
    await moving.connect(front.gateways[0].health_url)
    await moving.turn()

    for listener in listeners:
        check_feed(listener)
    assert moving.sent == steady.sent
    assert (turn.text, turn.answer) == (TEXT, TEXT.strip())
    resumed = [s.event for s in steady.sent if s.event_type == events.RUN_RESUMED]
    assert [event.payload["iteration"] for event in resumed] == [2]
    assert [line.split()[2] for line in front.cluster.counted()] == ["started", "finished"]
    (outbound,) = await front.cluster.outbound("im.web.demo")
    assert outbound["content"] == TEXT.strip()
    assert outbound["metadata"]["workflow_id"] == turn.workflow_id


async def test_a_model_that_fails_ends_the_feed_too(
    front: Front, listeners: list[Listener]
) -> None:
    await front.cluster.start("agent_worker")

    async def key_needed(request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer right"
        return refusal(401, {"message": "Incorrect API key provided"})

    front.model.will(key_needed)
    await front.post("hi")
    turn = await listeners[0].turn()
    assert (turn.error, turn.text) == ("llm_generate", "")
    assert turn.answer
    check_feed(listeners[0])

    # What was said before the model broke off is replaced by what happened.
    front.model.will(stream(delta("half an ans")))
    await front.post("hi again")
    await eventually(lambda: len(listeners[0].turns()) == 2, 30)
    turn = await listeners[0].turn()
    assert (turn.error, turn.text) == ("llm_generate", "half an ans")
    assert turn.answer != turn.text

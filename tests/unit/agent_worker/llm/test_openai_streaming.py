"""Streams of the OpenAI-compatible client, from a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from agent_worker.llm import errors
from agent_worker.llm.client import ChatRequest, ChatResponse, TextDelta
from agent_worker.llm.deltas import MAX_CHARACTERS
from agent_worker.llm.openai import OpenAIClient, Patience
from posthouse.errors import PosthouseError
from tests.support.model_server import (
    DONE,
    ModelServer,
    completion,
    data,
    delta,
    refusal,
    stream,
)
from tests.support.wait import eventually

QUICK = Patience(connect_s=5.0, whole_s=5.0, first_byte_s=0.5, idle_s=0.2)
REQUEST = ChatRequest(messages=[{"role": "user", "content": "hi"}], model="m-1")
USAGE = {"prompt_tokens": 12, "completion_tokens": 3}


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[OpenAIClient]:
    """A client of it that is quick to try again."""
    client = OpenAIClient("acme", server.base_url, "key-1", backoff_s=0.001, patience=QUICK)
    yield client
    await client.aclose()


HELLO = (delta("hel"), delta("lo"), delta(finish="stop"), data({"choices": [], "usage": USAGE}))


async def streamed(client: OpenAIClient) -> tuple[list[str], ChatResponse]:
    """The pieces of text, and the response, which comes last and once."""
    *pieces, response = [piece async for piece in client.chat_stream(REQUEST)]
    assert isinstance(response, ChatResponse)
    return [piece.text for piece in pieces if isinstance(piece, TextDelta)], response


async def test_text_comes_while_the_server_still_speaks(
    server: ModelServer, client: OpenAIClient
) -> None:
    more = asyncio.Event()
    server.will(stream(delta("hel"), more, delta("lo"), delta(finish="stop"), DONE))
    async with aclosing(client.chat_stream(REQUEST)) as pieces:
        assert await anext(pieces) == TextDelta("hel")
        more.set()
        assert await anext(pieces) == TextDelta("lo")
        response = await anext(pieces)
    assert isinstance(response, ChatResponse)
    assert (response.message["content"], response.model) == ("hello", "acme/m-1")


async def test_usage_comes_in_the_last_chunk(server: ModelServer, client: OpenAIClient) -> None:
    server.will(stream(*HELLO, DONE))
    texts, response = await streamed(client)
    assert (texts, response.usage) == (["hel", "lo"], (12, 3))
    assert server.bodies[0]["stream"] is True
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


async def test_tool_calls_come_whole(server: ModelServer, client: OpenAIClient) -> None:
    def call(**function: str) -> bytes:
        return delta(tool_calls=[{"index": 0, "id": "a", "function": function}])

    server.will(
        stream(call(name="look", arguments='{"a'), call(arguments='":1}'), delta(finish="stop"))
    )
    texts, response = await streamed(client)
    assert texts == []
    assert response.finish_reason == "tool_calls"
    assert response.message["tool_calls"][0]["function"] == {
        "name": "look",
        "arguments": '{"a":1}',
    }


async def test_a_server_that_refuses_stream_options_is_asked_without_from_then_on(
    server: ModelServer, client: OpenAIClient
) -> None:
    server.will(refusal(400, {"message": "unknown field: stream_options"}), stream(*HELLO, DONE))
    for _ in range(2):
        assert (await streamed(client))[0] == ["hel", "lo"]
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_server_that_answers_in_one_piece(
    server: ModelServer, client: OpenAIClient, kind: str
) -> None:
    whole = {"role": "assistant", "content": "hello"}
    if kind == "application/json":
        server.will(completion(whole, usage=USAGE))
    else:
        choice = {"index": 0, "message": whole, "finish_reason": "stop"}
        server.will(stream(data({"choices": [choice], "usage": USAGE})))
    texts, response = await streamed(client)
    assert (texts, response.usage) == (["hello"], (12, 3))


async def test_a_provider_may_be_told_not_to_stream(server: ModelServer) -> None:
    server.will(completion({"role": "assistant", "content": "hello"}))
    client = OpenAIClient("acme", server.base_url, stream=False)
    assert (await streamed(client))[0] == ["hello"]
    await client.aclose()
    assert "stream" not in server.bodies[0]


FAILS_BEFORE: dict[str, Any] = {
    "a refusal": refusal(503, "down"),
    "an error in the stream": stream(data({"error": {"message": "overloaded_error"}})),
    "an error event": stream(b'event: error\ndata: {"message": "try later"}\n\n'),
    "nothing": stream(),
    "no JSON": stream(b"data: <html>\n\n"),
    "an end without a finish": stream(delta(tool_calls=[{"index": 0, "id": "a"}])),
    "silence": stream(asyncio.Event()),
    "an empty body": JSONResponse({}),
}


@pytest.mark.parametrize("failure", FAILS_BEFORE)
async def test_before_the_first_piece_it_is_tried_again(
    server: ModelServer, client: OpenAIClient, failure: str
) -> None:
    server.will(FAILS_BEFORE[failure], stream(*HELLO, DONE))
    assert (await streamed(client))[0] == ["hel", "lo"]
    assert len(server.bodies) == 2


FAILS_BEHIND: dict[str, tuple[Any, type[PosthouseError]]] = {
    "broken off": (stream(delta("hel")), errors.IncompleteAnswer),
    "an error": (
        stream(delta("hel"), data({"error": {"code": 429, "message": "slow down"}})),
        errors.RateLimited,
    ),
    "silence": (stream(delta("hel"), asyncio.Event()), errors.ModelUnavailable),
    "rubbish": (stream(delta("hel"), b"data: {\n\n"), errors.IncompleteAnswer),
}


@pytest.mark.parametrize("failure", FAILS_BEHIND)
async def test_behind_the_first_piece_nothing_is_said_twice(
    server: ModelServer, client: OpenAIClient, failure: str
) -> None:
    answer, expected = FAILS_BEHIND[failure]
    server.will(answer)
    said: list[object] = []

    async def listen() -> None:
        async for piece in client.chat_stream(REQUEST):
            said.append(piece)

    with pytest.raises(expected):
        await listen()
    assert said == [TextDelta("hel")]
    assert len(server.bodies) == 1


@pytest.mark.parametrize("end", ["done", "finish"])
async def test_an_answer_may_end_either_way(
    server: ModelServer, client: OpenAIClient, end: str
) -> None:
    ends = {"done": DONE, "finish": delta(finish="stop")}
    server.will(stream(delta("hello"), ends[end]))
    assert (await streamed(client))[1].message["content"] == "hello"


async def test_a_socket_that_lingers_is_not_waited_for(
    server: ModelServer, client: OpenAIClient
) -> None:
    server.will(stream(*HELLO, DONE, asyncio.Event()))
    assert (await streamed(client))[0] == ["hel", "lo"]


async def test_a_call_that_is_given_up_ends_at_the_server(
    server: ModelServer, client: OpenAIClient
) -> None:
    ended = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        try:
            while True:
                yield delta("x")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async def endless(request: Request) -> Response:
        return StreamingResponse(body(), media_type="text/event-stream")

    server.will(endless)
    async with aclosing(client.chat_stream(REQUEST)) as pieces:
        await anext(pieces)
    await eventually(ended.is_set)


async def test_a_character_in_two_deltas_is_one(server: ModelServer, client: OpenAIClient) -> None:
    half = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n'
    server.will(stream(half % rb"a \ud83d", half % rb"\ude42 b", delta(finish="stop"), DONE))
    pieces, response = await streamed(client)
    assert pieces == ["a ", "🙂 b"]
    assert response.message["content"] == "a 🙂 b"

    server.will(stream(half % rb"alone \ud83d", delta(finish="stop"), DONE))
    pieces, response = await streamed(client)
    assert pieces == ["alone "]
    assert response.message["content"] == "alone "


async def test_a_stream_without_end_is_cut_off(server: ModelServer, client: OpenAIClient) -> None:
    server.will(stream(*[delta("x" * 10_000)] * 300, asyncio.Event()))
    pieces, response = await streamed(client)
    assert response.finish_reason == "length"
    assert MAX_CHARACTERS < len("".join(pieces)) < MAX_CHARACTERS + 20_000

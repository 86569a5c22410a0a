"""The OpenAI-compatible client against a real HTTP server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from agent_worker.llm import errors
from agent_worker.llm.client import ChatRequest, ChatResponse, Message
from agent_worker.llm.openai import OpenAIClient, Patience, build
from posthouse.errors import ConfigError, PosthouseError
from posthouse.settings import ProviderSettings
from tests.support.model_server import ModelServer, completion, refusal

HELLO = completion({"role": "assistant", "content": "hello"})
SHORT = Patience(connect_s=5.0, whole_s=0.2, first_byte_s=0.4, idle_s=0.2)


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[OpenAIClient]:
    """A client of it that is quick to try again."""
    client = OpenAIClient("acme", server.base_url, "key-1", backoff_s=0.001, patience=SHORT)
    yield client
    await client.aclose()


def request(*messages: Message, **more: Any) -> ChatRequest:
    asked = messages or ({"role": "user", "content": "hi"},)
    return ChatRequest(messages=asked, model="m-1", **more)


async def test_a_plain_call(server: ModelServer, client: OpenAIClient) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    server.will(completion({"role": "assistant", "content": "hello"}, usage=usage))

    response = await client.chat(request())

    assert response == ChatResponse(
        message={"role": "assistant", "content": "hello"},
        usage=response.usage,
        finish_reason="stop",
        model="acme/m-1",
    )
    assert response.usage == (12, 3)
    assert server.bodies == [{"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}]
    assert server.headers[0]["authorization"] == "Bearer key-1"


async def test_tools_and_limits_are_sent(server: ModelServer, client: OpenAIClient) -> None:
    server.will(HELLO)
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}

    await client.chat(request(tools=[tool], max_tokens=99, temperature=0.0))

    assert server.bodies[0]["tools"] == [tool]
    assert (server.bodies[0]["max_tokens"], server.bodies[0]["temperature"]) == (99, 0.0)


async def test_history_is_sent_as_providers_accept_it(
    server: ModelServer, client: OpenAIClient
) -> None:
    server.will(HELLO)
    broken = {"id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    signed = {
        "id": "a2",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'},
        "extra_content": {"thought_signature": "s"},
    }
    asked = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [broken, signed],
    }

    await client.chat(request({"role": "user", "content": "hi"}, asked))

    sent = server.bodies[0]["messages"][1]
    assert sent.keys() == {"role", "tool_calls"}
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"
    assert sent["tool_calls"][1] == signed


def call(**function: Any) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": "f", **function}}


@pytest.mark.parametrize(
    ("wire", "arguments"),
    [
        (call(arguments='{"a": 1}'), '{"a": 1}'),
        (call(arguments={"a": 1}), '{"a":1}'),
        (call(arguments=""), "{}"),
        (call(arguments="  "), "{}"),
        (call(arguments=None), "{}"),
        (call(), "{}"),
        (call(arguments='{"a'), '{"a'),
    ],
)
async def test_arguments_are_always_a_string(
    server: ModelServer, client: OpenAIClient, wire: dict[str, Any], arguments: str
) -> None:
    server.will(completion({"content": None, "tool_calls": [wire]}, finish="tool_calls"))

    response = await client.chat(request())

    assert response.message["content"] == ""
    assert response.message["tool_calls"][0]["function"]["arguments"] == arguments


async def test_calls_without_an_id_count_and_calls_without_a_name_do_not(
    server: ModelServer, client: OpenAIClient
) -> None:
    nameless = {"id": "y", "function": {"arguments": "{}"}}
    bare = {"function": {"name": "f", "arguments": "{}"}, "extra": 1}
    server.will(completion({"tool_calls": [nameless, bare]}, finish="tool_calls"))

    response = await client.chat(request())

    (kept,) = response.message["tool_calls"]
    assert kept == {
        "id": "",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra": 1,
    }


@pytest.mark.parametrize("finish", ["stop", "", None, "tool_calls"])
async def test_calls_are_calls_whatever_the_finish_reason(
    server: ModelServer, client: OpenAIClient, finish: str | None
) -> None:
    server.will(completion({"tool_calls": [call(arguments="{}")]}, finish=finish))

    assert (await client.chat(request())).finish_reason == "tool_calls"


@pytest.mark.parametrize(("finish", "used"), [("length", 3), ("tool_calls", 20), ("stop", 21)])
async def test_a_cut_off_answer_says_so(
    server: ModelServer, client: OpenAIClient, finish: str, used: int
) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": used}
    message = {"tool_calls": [call(arguments="{}")]}
    server.will(completion(message, finish=finish, usage=usage))

    assert (await client.chat(request(max_tokens=20))).finish_reason == "length"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url"}], ""),
    ],
)
async def test_content_in_all_shapes(
    server: ModelServer, client: OpenAIClient, content: Any, text: str
) -> None:
    server.will(completion({"content": content}))

    assert (await client.chat(request())).message["content"] == text


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_stays_out_of_the_content(
    server: ModelServer, client: OpenAIClient, field: str
) -> None:
    server.will(completion({"content": "four", field: "two and two"}))

    message = (await client.chat(request())).message

    assert message["content"] == "four"
    assert message["reasoning_content"] == "two and two"


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, "n/a"])
async def test_usage_that_is_missing_is_estimated(
    server: ModelServer, client: OpenAIClient, usage: Any
) -> None:
    server.will(completion({"content": "one two three four"}, usage=usage))

    response = await client.chat(request({"role": "user", "content": "五个字的话" * 20}))

    assert response.usage.output_tokens == 4
    assert 80 <= response.usage.input_tokens <= 110


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (401, {"message": "bad key"}, errors.ModelAuth),
        (403, {"message": "no"}, errors.ModelAuth),
        (400, {"message": "bad field"}, errors.BadModelRequest),
        (404, {"code": "model_not_found", "message": "m"}, errors.BadModelRequest),
        (400, {"code": "context_length_exceeded", "message": "m"}, errors.ContextTooLong),
        (400, {"message": "prompt is too long: 9 tokens"}, errors.ContextTooLong),
        (402, {"message": "pay"}, errors.QuotaExhausted),
        (429, {"code": "insufficient_quota", "message": "m"}, errors.QuotaExhausted),
        (429, {"code": "1113", "message": "m"}, errors.QuotaExhausted),
        (429, {"message": "1113 requests are too many"}, errors.RateLimited),
        (400, {"message": "too many tokens, please wait"}, errors.RateLimited),
        (429, "slow down", errors.RateLimited),
        (529, {"type": "overloaded_error", "message": "m"}, errors.RateLimited),
        (500, {"message": "oops"}, errors.ModelUnavailable),
        (503, {"message": "context length exceeded by far"}, errors.ContextTooLong),
        (408, {"message": "late"}, errors.ModelUnavailable),
        (200, {"message": "upstream failed"}, errors.ModelUnavailable),
        (200, {"code": 429, "message": "m"}, errors.RateLimited),
        (200, {"code": 401, "message": "m"}, errors.ModelAuth),
        (200, {"type": "invalid_request_error", "message": "m"}, errors.BadModelRequest),
    ],
)
async def test_errors_are_typed_and_only_passing_ones_are_tried_again(
    server: ModelServer,
    client: OpenAIClient,
    status: int,
    error: Any,
    expected: type[PosthouseError],
) -> None:
    server.will(refusal(status, error))

    with pytest.raises(expected) as raised:
        await client.chat(request())

    assert type(raised.value) is expected
    assert "acme/m-1" in raised.value.message
    assert "key-1" not in str(raised.value.details) + raised.value.message
    assert len(server.bodies) == (3 if expected.retryable else 1)


async def test_without_retries_the_first_failure_is_raised(
    server: ModelServer, client: OpenAIClient
) -> None:
    server.will(refusal(503, "down"), HELLO)
    with pytest.raises(errors.ModelUnavailable):
        await client.chat(request(retries=False))
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (JSONResponse({"choices": []}), errors.IncompleteAnswer),
        (JSONResponse({}), errors.IncompleteAnswer),
        (JSONResponse(["?"]), errors.IncompleteAnswer),
        (PlainTextResponse("<html>"), errors.IncompleteAnswer),
        (PlainTextResponse("<html>", 502), errors.ModelUnavailable),
        (
            JSONResponse({"base_resp": {"status_code": 1008, "status_msg": "balance"}}),
            errors.QuotaExhausted,
        ),
    ],
)
async def test_a_response_without_an_answer_is_an_error(
    server: ModelServer, client: OpenAIClient, answer: Response, expected: type[PosthouseError]
) -> None:
    server.will(answer)

    with pytest.raises(expected):
        await client.chat(request())


async def test_an_error_field_of_null_is_no_error(
    server: ModelServer, client: OpenAIClient
) -> None:
    server.will(completion({"content": "fine"}, error=None, base_resp={"status_code": 0}))

    assert (await client.chat(request())).message["content"] == "fine"


async def test_a_passing_failure_is_survived(server: ModelServer, client: OpenAIClient) -> None:
    server.will(refusal(503, "busy"), refusal(429, "busy", retry_after_ms="1"), HELLO)

    assert (await client.chat(request())).message["content"] == "hello"
    assert len(server.bodies) == 3


async def test_the_pause_that_the_server_asks_for_is_kept(
    server: ModelServer, client: OpenAIClient
) -> None:
    loop = asyncio.get_running_loop()
    server.will(refusal(429, "busy", retry_after_ms="150"), HELLO)

    started = loop.time()
    await client.chat(request())

    assert loop.time() - started >= 0.15


async def test_a_long_pause_gives_the_turn_back(server: ModelServer, client: OpenAIClient) -> None:
    server.will(refusal(429, "busy", retry_after="61"))

    with pytest.raises(errors.RateLimited) as raised:
        await client.chat(request())

    assert raised.value.retry_after_s == 61
    assert len(server.bodies) == 1


async def test_a_server_that_says_nothing_is_unavailable(
    server: ModelServer, client: OpenAIClient
) -> None:
    async def silent(_: Request) -> Response:
        await asyncio.sleep(5)
        return HELLO

    server.will(silent)

    with pytest.raises(errors.ModelUnavailable, match="no answer in time"):
        await client.chat(request())
    assert len(server.bodies) == 3


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    client = OpenAIClient("acme", "http://127.0.0.1:9/v1", backoff_s=0.001)

    with pytest.raises(errors.ModelUnavailable, match="acme/m-1"):
        await client.chat(request())
    await client.aclose()


async def test_a_connection_closed_while_it_was_pooled_is_survived() -> None:
    """Some servers promise keep-alive and close all the same."""
    served = 0
    body = bytes(HELLO.body)

    async def one_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await reader.readuntil(b"\r\n\r\n")
        served += 1
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: keep-alive\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(one_answer, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    client = OpenAIClient("acme", f"http://127.0.0.1:{port}/v1", backoff_s=0.001)
    async with listener:
        for _ in range(3):
            assert (await client.chat(request())).message["content"] == "hello"
        await client.aclose()

    assert served >= 3


async def test_a_proxy_of_the_environment_is_used(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server plays the proxy: the host that is asked for does not exist."""
    server.will(HELLO)
    monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
    client = OpenAIClient("acme", "http://models.invalid/v1", backoff_s=0.001, patience=SHORT)

    response = await client.chat(request())

    await client.aclose()
    assert response.message["content"] == "hello"
    assert server.headers[0]["host"] == "models.invalid"


async def test_cancelling_a_call_ends_it(server: ModelServer, client: OpenAIClient) -> None:
    reached = asyncio.Event()

    async def silent(_: Request) -> Response:
        reached.set()
        await asyncio.sleep(5)
        return HELLO

    server.will(silent)
    task = asyncio.create_task(client.chat(request()))
    await reached.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_build_reads_the_key_from_environment_or_file(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.will(HELLO)
    monkeypatch.setenv("ACME_KEY", " from-env\n")
    file = tmp_path / "key"
    file.write_text("from-file\n")
    settings = {"kind": "openai", "base_url": server.base_url}

    for provider in (
        ProviderSettings(**settings, api_key_env="ACME_KEY"),
        ProviderSettings(**settings, api_key_file=str(file)),
        ProviderSettings(**settings),
    ):
        client = build("acme", provider)
        await client.chat(request())
        await client.aclose()

    sent = [headers.get("authorization") for headers in server.headers]
    assert sent == ["Bearer from-env", "Bearer from-file", None]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"api_key_env": "POSTHOUSE_NO_SUCH_KEY"}, "POSTHOUSE_NO_SUCH_KEY is not set or empty"),
        ({"api_key_file": "/no/such/file"}, "/no/such/file"),
        ({"tool_mode": "json_schema"}, "tool_mode"),
    ],
)
def test_build_refuses_what_it_cannot_use(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build("acme", ProviderSettings(kind="openai", **given))

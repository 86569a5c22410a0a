"""Request and reply over a real NATS server."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars

from posthouse import bus as posthouse_bus
from posthouse.errors import BadRequest, Busy, Fenced, Unavailable
from posthouse.messages import Wire
from posthouse.rpc import Raw, RemotePermanentError, RpcClient, RpcServer
from tests.support.servers import Nats

SUBJECT = "memory.test"


class Question(Wire):
    text: str
    wait_s: float = 0


class Answer(Wire):
    text: str = ""


async def answer(question: Question) -> Answer | Raw | None:
    """Do what the text says."""
    await asyncio.sleep(question.wait_s)
    match question.text:
        case "busy":
            raise Busy("full", waiting=7)
        case "fenced":
            raise Fenced("not yours")
        case "bug":
            raise ZeroDivisionError("a secret")
        case "invalid":
            Answer.model_validate({"text": []})
        case "huge":
            return Answer(text="x" * 2_000_000)
        case "raw":
            return Raw('{"text":"as it is"}')
        case "nothing":
            return None
        case "ids":
            return Answer(text=get_contextvars()["correlation_id"])
    return Answer(text=question.text)


@pytest.fixture
async def client(nats: Nats) -> AsyncIterator[RpcClient]:
    broker = posthouse_bus.build_broker(nats.url, "server", graceful_timeout_s=2)
    server = RpcServer("tests")
    server.add(SUBJECT, answer)
    server.attach(broker)
    await posthouse_bus.start(broker)
    yield RpcClient(await nats.connect())
    await posthouse_bus.stop(broker)


async def ask(client: RpcClient, text: str, wait_s: float = 0, timeout_s: float = 3) -> str:
    question = Question(text=text, wait_s=wait_s)
    return (await client.call(SUBJECT, question, Answer, timeout_s)).text


@pytest.mark.parametrize(
    ("text", "result"), [("你好", "你好"), ("raw", "as it is"), ("nothing", "")]
)
async def test_results(client: RpcClient, text: str, result: str) -> None:
    assert await ask(client, text) == result


async def test_errors_come_back_typed(client: RpcClient) -> None:
    with pytest.raises(Busy, match="full") as caught:
        await ask(client, "busy")
    assert caught.value.details == {"waiting": 7}
    with pytest.raises(Fenced, match="not yours"):
        await ask(client, "fenced")


@pytest.mark.parametrize("text", ["bug", "invalid"])
async def test_an_unforeseen_error_gets_a_reply(client: RpcClient, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(RemotePermanentError) as caught:
        await ask(client, text)
    assert time.monotonic() - began < 1
    assert caught.value.details["code"] == "internal"
    assert "secret" not in str(caught.value) + str(caught.value.details)


async def test_a_malformed_request_is_refused(client: RpcClient) -> None:
    class Other(Wire):
        text: int = 7

    with pytest.raises(BadRequest, match="text"):
        await client.call(SUBJECT, Other(), Answer)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
async def test_what_is_not_json_is_refused_too(client: RpcClient, nats: Nats, body: bytes) -> None:
    reply = await (await nats.connect()).request(SUBJECT, body, timeout=2)
    assert b'"bad_request"' in reply.data


async def test_a_reply_too_large_for_nats_is_an_error(client: RpcClient) -> None:
    with pytest.raises(RemotePermanentError, match="too large"):
        await ask(client, "huge")


async def test_nobody_there_is_known_at_once(client: RpcClient) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"memory\.nobody"):
        await client.call("memory.nobody", Question(text="x"), Answer)
    assert time.monotonic() - began < 1


async def test_no_answer_in_time(client: RpcClient) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await ask(client, "late", wait_s=1.5, timeout_s=0.3)
    assert time.monotonic() - began < 1


async def test_no_server(nats: Nats) -> None:
    connection = await nats.connect()
    await nats.server.stop()
    with pytest.raises(Unavailable):
        await ask(RpcClient(connection), "x", timeout_s=0.3)
    await posthouse_bus.close(connection)


async def test_requests_run_side_by_side(client: RpcClient) -> None:
    began = time.monotonic()
    answers = await asyncio.gather(*(ask(client, str(n), wait_s=0.5) for n in range(20)))
    assert answers == [str(n) for n in range(20)]
    assert time.monotonic() - began < 2


async def test_ids_travel_along(client: RpcClient) -> None:
    with bound_contextvars(correlation_id="c-1"):
        assert await ask(client, "ids") == "c-1"
    assert len(await ask(client, "ids")) == 32


async def test_a_plain_request_gets_exactly_one_reply(client: RpcClient, nats: Nats) -> None:
    connection = await nats.connect()
    inbox = connection.new_inbox()
    replies = await connection.subscribe(inbox)
    await connection.publish(SUBJECT, b'{"text":"x"}', reply=inbox)
    await replies.next_msg(timeout=2)
    with pytest.raises(TimeoutError):
        await replies.next_msg(timeout=0.3)


async def test_a_message_without_reply_subject_harms_nothing(client: RpcClient, nats: Nats) -> None:
    await (await nats.connect()).publish(SUBJECT, b'{"text":"x"}')
    assert await ask(client, "still there") == "still there"


async def test_stop_answers_what_is_under_way(nats: Nats) -> None:
    broker = posthouse_bus.build_broker(nats.url, "server", graceful_timeout_s=3)
    server = RpcServer("tests")
    server.add(SUBJECT, answer)
    server.attach(broker)
    await posthouse_bus.start(broker)
    client = RpcClient(await nats.connect())
    asking = asyncio.create_task(ask(client, "slow", wait_s=0.6))
    await asyncio.sleep(0.2)
    await posthouse_bus.stop(broker)
    assert await asking == "slow"


async def test_connecting_to_nobody_fails_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posthouse_bus, "CONNECT_TIMEOUT_S", 0.5)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9") as caught:
        await posthouse_bus.connect("nats://user:secret@127.0.0.1:9", "test")
    assert "secret" not in caught.value.message
    broker = posthouse_bus.build_broker("nats://127.0.0.1:9", "test")
    with pytest.raises(Unavailable):
        await posthouse_bus.start(broker)
    assert time.monotonic() - began < 4
    await posthouse_bus.stop(broker)


async def test_closing_while_nats_is_away_raises_nothing(nats: Nats) -> None:
    connection = await nats.connect()
    broker = posthouse_bus.build_broker(nats.url, "server", graceful_timeout_s=1)
    await posthouse_bus.start(broker)
    await nats.server.stop()
    await posthouse_bus.stop(broker)
    await posthouse_bus.close(connection)

"""The way out, against a real server: pinned addresses, certificates, and every kind of failure."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
from starlette import requests
from starlette.responses import RedirectResponse, Response, StreamingResponse

from posthouse.egress import http
from posthouse.egress.http import MAX_START_BYTES, HttpEgress
from posthouse.egress.targets import Answer, Refused, Request, Target, Unanswered
from posthouse.errors import PermanentError, Unavailable
from tests.support.processes import free_port
from tests.support.webhook_receiver import CERTIFICATE, WebhookReceiver, receiving

BODY = b'{"content": "hi"}'
NAME = "callback.test"


class Names:
    """A resolver with answers of its own, which counts the questions."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self.addresses


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with receiving(WebhookReceiver()) as running:
        yield running


def inside(url: str, timeout_s: float = 5.0) -> Target:
    return Target.parse(url, allow_private=True, timeout_s=timeout_s)


async def post(target: Target, *addresses: str, headers: dict[str, str] | None = None) -> Answer:
    async with HttpEgress(Names(*addresses)) if addresses else HttpEgress() as egress:
        return await egress.send(Request(target, headers or {}, "POST", BODY))


async def test_it_posts_the_bytes_and_returns_the_answer(receiver: WebhookReceiver) -> None:
    receiver.answers["/hook"] = [Response(b"taken", 202, {"retry-after": "5"})]
    answer = await post(inside(f"{receiver.url}/hook?k=1"), headers={"x-mine": "1"})
    assert (answer.status, answer.body, answer.retry_after_s(0)) == (202, b"taken", 5.0)
    (delivery,) = receiver.deliveries
    assert (delivery.raw, delivery.headers["x-mine"]) == (BODY, "1")


async def test_a_name_is_resolved_once_and_kept(receiver: WebhookReceiver) -> None:
    port = httpx.URL(receiver.url).port
    names = Names("127.0.0.1")
    async with HttpEgress(names) as egress:
        await egress.send(Request(inside(f"http://{NAME}:{port}/"), {}, "POST", BODY))
    assert names.asked == [NAME]
    assert receiver.deliveries[0].headers["host"] == f"{NAME}:{port}"


async def test_a_name_with_one_private_address_is_refused(receiver: WebhookReceiver) -> None:
    target = Target.parse(f"https://{NAME}:{httpx.URL(receiver.url).port}/")
    for addresses in (["127.0.0.1"], ["8.8.8.8", "::ffff:127.0.0.1"], ["fe80::1%lo"]):
        with pytest.raises(Refused, match="private"):
            await post(target, *addresses)
    assert receiver.deliveries == []


async def test_localhost_is_private() -> None:
    with pytest.raises(Refused, match="localhost is the private address"):
        await post(Target.parse("https://localhost/"))


async def test_redirects_are_not_followed(receiver: WebhookReceiver) -> None:
    receiver.answers["/a"] = [RedirectResponse(f"{receiver.url}/b", 307)]
    assert (await post(inside(f"{receiver.url}/a"))).status == 307
    assert [delivery.path for delivery in receiver.deliveries] == ["/a"]


async def test_no_proxy_and_no_password_from_the_environment(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await post(inside(receiver.url))).status == 200
    assert "authorization" not in receiver.deliveries[0].headers


async def test_the_certificate_is_checked_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with receiving(WebhookReceiver(), tls=True) as receiver:
        port = httpx.URL(receiver.url).port
        assert (await post(inside(f"https://{NAME}:{port}/"), "127.0.0.1")).status == 200
        assert receiver.deliveries[0].headers["host"] == f"{NAME}:{port}"
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            await post(inside(f"https://other.test:{port}/"), "127.0.0.1")
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            await post(inside(f"https://{NAME}:{port}/"), "127.0.0.1")
    assert len(receiver.deliveries) == 1


async def test_the_next_address_is_tried(receiver: WebhookReceiver) -> None:
    target = inside(f"http://{NAME}:{httpx.URL(receiver.url).port}/")
    assert (await post(target, "::1", "127.0.0.1")).status == 200
    assert len(receiver.deliveries) == 1


async def test_nobody_listens() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        await post(inside(f"http://127.0.0.1:{free_port()}/"))


async def test_a_name_without_an_address() -> None:
    async def unknown(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with HttpEgress(unknown) as egress:
        with pytest.raises(Unavailable, match=r"nowhere\.test has no address now: .*not known"):
            await egress.send(Request(inside("http://nowhere.test/"), {}, "POST", BODY))
    # A label that DNS cannot carry, refused by the resolver of Python itself.
    with pytest.raises(Unavailable, match="no address"):
        await post(inside(f"http://{'a' * 70}.test/"))


async def test_no_answer_in_time(receiver: WebhookReceiver) -> None:
    async def slow(request: requests.Request) -> Response:
        await asyncio.sleep(30)
        return Response()

    receiver.answers["/"] = [slow]
    with pytest.raises(Unanswered, match="ReadTimeout"):
        await post(inside(receiver.url, timeout_s=0.2))
    assert len(receiver.deliveries) == 1


async def test_a_connection_that_breaks_after_the_request() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(BODY)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unanswered):
        await post(inside(f"http://127.0.0.1:{port}/"))
    server.close()
    await server.wait_closed()


async def test_of_a_long_answer_only_the_beginning_is_read(receiver: WebhookReceiver) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    receiver.answers["/"] = [StreamingResponse(endless())]
    assert (await post(inside(receiver.url))).body == b"x" * MAX_START_BYTES


async def test_an_answer_whose_body_never_ends_counts_by_its_status(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "START_TIMEOUT_S", 0.1)

    async def stuck() -> AsyncIterator[bytes]:
        yield b"ta"
        await asyncio.Event().wait()

    receiver.answers["/"] = [StreamingResponse(stuck())]
    answer = await post(inside(receiver.url))
    assert (answer.status, answer.body) == (200, b"ta")


async def test_what_is_no_header_is_refused(receiver: WebhookReceiver) -> None:
    for value in ("a\nb", "编号"):
        with pytest.raises(PermanentError, match="cannot be written"):
            await post(inside(receiver.url), headers={"webhook-id": value})
    assert receiver.deliveries == []


async def test_an_address_of_ipv6() -> None:
    with pytest.raises(Unavailable, match="::1 cannot be reached"):
        await post(inside(f"http://[::1]:{free_port()}/"))

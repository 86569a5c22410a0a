"""A post without an answer may have been taken; all other errors say that it was not."""

import asyncio

import pytest

from gateway.adapters.http_egress import HttpPosts
from gateway.egress import Target
from gateway.ports import OutcomeUnknown
from posthouse.egress.http import HttpEgress
from posthouse.errors import Unavailable
from tests.support.processes import free_port
from tests.support.webhook_receiver import WebhookReceiver, receiving


def inside(url: str) -> Target:
    return Target.parse(url, allow_private=True)


async def test_it_posts() -> None:
    async with receiving(WebhookReceiver()) as receiver, HttpEgress() as http:
        answer = await HttpPosts(http).post(inside(receiver.url), {"x-mine": "1"}, b"hi")
    (delivery,) = receiver.deliveries
    assert (answer.status, delivery.raw, delivery.headers["x-mine"]) == (200, b"hi", "1")


async def test_no_answer_is_an_unknown_outcome() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"hi")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, HttpEgress() as http:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OutcomeUnknown, match="no answer"):
            await HttpPosts(http).post(inside(f"http://127.0.0.1:{port}/"), {}, b"hi")


async def test_nobody_listens() -> None:
    async with HttpEgress() as http:
        with pytest.raises(Unavailable):
            await HttpPosts(http).post(inside(f"http://127.0.0.1:{free_port()}/"), {}, b"hi")

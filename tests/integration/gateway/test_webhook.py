"""Signed webhooks in, signed callbacks out, with all services as processes.

The tests share one running system, and each has conversations of its own; what a test breaks, the
system mends by itself.
"""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from posthouse.embedded.nats import NatsServer
from posthouse.embedded.postgres import PostgresServer
from tests.integration.gateway.webhooks import (
    Posthouse,
    message,
    now_signed,
    run_posthouse,
)
from tests.support.processes import ServiceProcess
from tests.support.servers import crash, fresh_database
from tests.support.wait import eventually
from tests.support.webhook_receiver import WebhookReceiver, receiving
from tests.support.webhook_sender import OTHER, WHSEC, github

PAGE = Path(__file__).parents[3] / "docs" / "webhook.md"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def posthouse(
    migrated_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Posthouse]:
    folder = tmp_path_factory.mktemp("webhook")
    server = NatsServer(folder / "nats")
    await server.start()
    try:
        async with fresh_database(migrated_server) as dsn, run_posthouse(server, dsn, folder) as up:
            yield up
    finally:
        await server.stop()


async def stored_again(posthouse: Posthouse, id: str, chat: str, content: str) -> None:
    """Repeat a message until JetStream has forgotten the first one, and memory has to know it."""

    async def twice() -> bool:
        assert (await posthouse.say(id, chat, content)).status_code == 200
        return len(await posthouse.stored(chat)) >= 2

    await eventually(twice, 20)


@asynccontextmanager
async def program(source: str, **environment: str) -> AsyncIterator[Process]:
    """A program of the page, as its reader runs it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        source,
        env={**os.environ, "SHOP_SECRET": WHSEC, "PYTHONIOENCODING": "utf-8", **environment},
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def line(process: Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    async with asyncio.timeout(30):
        return (await process.stdout.readline()).decode().rstrip()


async def answered_once(posthouse: Posthouse, id: str, chat: str) -> None:
    """A second answer would have come before that of a later message."""
    await posthouse.say(f"{id}-later", chat, "5+5")
    await posthouse.answers(f"{id}-later")
    assert len(await posthouse.answers(id)) == 1


async def test_a_signed_message_is_stored_answered_and_called_back_once(
    posthouse: Posthouse,
) -> None:
    answer = await posthouse.say("a-1", "a", "17*23+4 等于多少")
    # Read at once: it is in the stream before the answer is.
    (stored,) = await posthouse.stored("a")
    assert answer.status_code == 200
    assert stored["id"] == answer.json()["message_id"] == "webhook:shop:a-1"
    (delivery,) = await posthouse.answers("a-1")
    assert delivery.signed
    assert delivery.body["content"] == "calculator → 395"
    assert delivery.id == delivery.body["id"]
    assert (delivery.body["conversation"], delivery.body["kind"]) == (
        "im://webhook+shop/a",
        "final",
    )


async def test_the_signature_of_github(posthouse: Posthouse) -> None:
    body = message("b-1", "b", "3*4")
    assert (await posthouse.post(body, github(body, OTHER))).status_code == 401
    assert (await posthouse.post(body, github(body))).status_code == 200
    (delivery,) = await posthouse.answers("b-1")
    assert delivery.body["content"] == "calculator → 12"


async def test_commands_are_answered(posthouse: Posthouse) -> None:
    assert (await posthouse.say("c-1", "c", "/status")).status_code == 200
    (delivery,) = await posthouse.answers("c-1")
    assert delivery.signed
    assert delivery.body["kind"] == "notice"
    assert await posthouse.stored("c") == []


async def test_what_is_not_signed_now_by_this_bot_is_unauthorized(posthouse: Posthouse) -> None:
    body = message("d-1", "d", "hi")
    right = now_signed(body)
    garbled: list[dict[str, str | bytes]] = [
        {},
        {**right, "webhook-signature": "v1,AAAA"},
        {**right, "webhook-signature": ""},
        {**right, "webhook-signature": "签名".encode()},
        {**right, "webhook-signature": b"v1,\xff\xfe"},
        {**right, "webhook-timestamp": "now"},
        {**right, "webhook-timestamp": "9" * 400},
        {**right, "webhook-timestamp": ""},
        {**right, "webhook-id": b"\xe9"},
        {**right, "webhook-id": "other"},
        {"x-hub-signature-256": "sha256="},
        {"x-hub-signature-256": "sha1=" + github(body)["x-hub-signature-256"][7:]},
        {"x-hub-signature-256": b"sha256=\xff"},
        {name: value for name, value in right.items() if name != "webhook-id"},
        {name: value for name, value in right.items() if name != "webhook-timestamp"},
        {name: value for name, value in right.items() if name != "webhook-signature"},
        {**now_signed(body, away_s=-310)},
        {**now_signed(body, away_s=310)},
        {**now_signed(body, OTHER)},
        {**now_signed(message("d-1", "d", "ho"))},
    ]
    for headers in garbled:
        answer = await posthouse.post(body, headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "bad_signature")
    # Nor does the other bot take what this one takes.
    assert (await posthouse.post(body, right, bot="other")).status_code == 401
    assert (await posthouse.post(body, now_signed(body, OTHER), bot="other")).status_code == 200
    assert await posthouse.stored("d") == []


async def test_a_repeat_is_answered_once(posthouse: Posthouse) -> None:
    for repeat in await asyncio.gather(*(posthouse.say("e-1", "e", "1+1") for _ in range(8))):
        assert repeat.status_code == 200
        assert repeat.json()["message_id"] == "webhook:shop:e-1"
    await posthouse.answers("e-1")
    await stored_again(posthouse, "e-1", "e", "1+1")
    await answered_once(posthouse, "e-1", "e")


async def test_a_repeat_after_a_kill_is_answered_once(posthouse: Posthouse) -> None:
    assert (await posthouse.say("f-1", "f", "1+1")).status_code == 200
    await posthouse.gateway.kill()
    await posthouse.gateway.start()
    await posthouse.answers("f-1")
    await stored_again(posthouse, "f-1", "f", "1+1")
    await answered_once(posthouse, "f-1", "f")


async def test_nats_dies_and_comes_back(posthouse: Posthouse) -> None:
    server = posthouse.cluster.nats.server
    await crash(server)
    answer = await posthouse.say("g-1", "g", "1+1")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["code"] == "unavailable"
    await server.start()

    async def taken() -> bool:
        return (await posthouse.say("g-1", "g", "1+1")).status_code == 200

    await eventually(taken, 30)
    assert len(await posthouse.answers("g-1", timeout_s=40)) == 1
    await answered_once(posthouse, "g-1", "g")


async def test_a_callback_that_is_down_gets_its_answer_later_and_once(
    posthouse: Posthouse,
) -> None:
    log = posthouse.gateway.log
    assert (await posthouse.say("h-1", "h", "1+1", bot="late")).status_code == 200
    await eventually(lambda: "127.0.0.1 cannot be reached" in log.read_text(), 30)
    late = WebhookReceiver({"/late": WHSEC[6:]})
    late.answers["/late"] = [Response(status_code=503, headers={"retry-after": "1"}), Response()]
    async with receiving(late, posthouse.ports.late):
        await posthouse.say("h-2", "h", "2+2", bot="late")
        await eventually(lambda: late.to("/late", "calculator → 4"), 30)
        first, again = late.to("/late", "calculator → 2")
    # The 503 had it sent again, under the same id and signed anew.
    assert first.id == again.id
    assert first.signed
    assert again.signed
    assert [d.body["seq"] for d in late.deliveries] == [1, 1, 2]


async def test_a_callback_that_is_too_slow_can_tell_the_repeat(posthouse: Posthouse) -> None:
    async def slow(request: Request) -> Response:
        await asyncio.sleep(5)
        return Response()

    receiver = posthouse.receiver
    receiver.answers["/slow"] = [slow, Response()]
    assert (await posthouse.say("l-1", "l", "1+1", bot="slow")).status_code == 200
    await eventually(lambda: len(receiver.to("/slow", "calculator → 2")) == 2, 30)
    first, again = receiver.to("/slow", "calculator → 2")
    assert first.id == again.id
    assert first.signed
    assert again.signed


async def test_redirects_are_not_followed(posthouse: Posthouse) -> None:
    receiver = posthouse.receiver
    receiver.answers["/moved"] = [RedirectResponse(f"{receiver.url}/elsewhere", 307)]
    assert (await posthouse.say("i-1", "i", "1+1", bot="moved")).status_code == 200
    (reason,) = await eventually(lambda: posthouse.dead("i", "moved"), 30)
    assert reason == "the callback answered 307; redirects are not followed"
    assert len(receiver.to("/moved", "calculator → 2")) == 1
    assert receiver.to("/elsewhere", "calculator → 2") == []


async def test_a_private_target_is_refused(posthouse: Posthouse) -> None:
    assert (await posthouse.say("j-1", "j", "1+1", bot="inside")).status_code == 200
    (reason,) = await eventually(lambda: posthouse.dead("j", "inside"), 30)
    assert "localhost is the private address" in reason


async def test_the_programs_of_the_page_work(posthouse: Posthouse) -> None:
    receive, send = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    async with program(receive, CALLBACK_PORT=str(posthouse.ports.page)) as receiver:
        answer = await posthouse.say("p-1", "p", "17*23+4", bot="page")
        assert answer.status_code == 200
        assert await line(receiver) == "im://webhook+page/p calculator → 395"
    async with program(send, POSTHOUSE_URL=posthouse.gateway.health_url) as sender:
        stored = json.loads(await line(sender))
    assert stored["conversation"] == "im://webhook+shop/alice"
    (delivery,) = await posthouse.answers(stored["message_id"].removeprefix("webhook:shop:"))
    assert delivery.body["content"] == "calculator → 395"


async def test_no_secret_and_no_text_is_in_the_log(posthouse: Posthouse) -> None:
    text = "a text that nobody else may read"
    await posthouse.say("k-1", "k", text)
    await posthouse.answers("k-1")
    log = posthouse.gateway.log.read_text()
    assert "webhook.refused" in log
    assert text not in log
    assert WHSEC[6:] not in log


async def test_a_wrong_configuration_is_refused_at_the_start(
    posthouse: Posthouse, tmp_path: Path
) -> None:
    bot = {"bot": "new", "secret_env": "NEW_SECRET"}
    channels = json.dumps({"webhook": [bot]})
    environment = {**posthouse.cluster.environment, "POSTHOUSE_CHANNELS": channels}
    service = ServiceProcess("gateway", environment, tmp_path)
    await service.spawn()
    assert await service.ended() == 2
    assert "channels.webhook, bot new: secret_env: the environment variable NEW_SECRET" in (
        service.log.read_text()
    )

"""Every failure ends in a visible answer and a record (G5), and harms nobody else."""

import asyncio
import json

import pytest

from posthouse import streams
from posthouse.texts import language_of
from tests.support.cluster import Cluster
from tests.support.processes import ServiceProcess
from tests.support.wait import eventually


async def _keep_alive(process: ServiceProcess) -> None:
    """What the supervisor does: start the worker again whenever it dies."""
    while True:
        await process.ended(timeout_s=None)
        await process.start()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("tool", ["die", "block"])
async def test_a_message_that_takes_its_workers_along_is_given_up(
    hasty_cluster: Cluster, tool: str
) -> None:
    """``die`` kills the process, ``block`` never returns to the event loop."""
    cluster = hasty_cluster
    worker = await cluster.start("agent_worker")
    keeper = asyncio.create_task(_keep_alive(worker))
    try:
        await cluster.say("im.cli.local", f"!tool {tool} {{}}", id="m1")
        await cluster.say("im.cli.local", "2+3", id="m2")
        answers = await cluster.answered("im.cli.local", 2, timeout_s=90)
    finally:
        keeper.cancel()
    assert [answer["in_reply_to"] for answer in answers] == [["m1"], ["m2"]]
    assert answers[0]["error"]["code"] == "turn_failed"
    assert answers[0]["content"]
    assert "5" in answers[1]["content"]
    ((headers, body),) = await cluster.messages(streams.DLQ, "dlq.inbound.im.cli.local")
    assert headers["Posthouse-Reason"].startswith("gave_up")
    assert int(headers["Posthouse-Attempts"]) > 2
    assert body == {"content": f"!tool {tool} {{}}", "id": "m1"}
    (row,) = await cluster.rows("select attempts, vanished from mailbox where source_id = 'm1'")
    assert row["vanished"] == 3


async def test_a_flood_is_refused_visibly_and_others_do_not_notice(cluster: Cluster) -> None:
    """R1: beyond 50 unanswered messages each further one gets one notice."""
    await cluster.start("agent_worker")
    await cluster.say("im.cli.flood", '!tool count {"name": "slow", "seconds": 6}', id="f0")
    for number in range(1, 60):
        await cluster.say("im.cli.flood", "2+3", id=f"f{number}")
    await cluster.say("im.cli.calm", "2+3", id="calm")
    await cluster.answered("im.cli.calm", timeout_s=5)
    answers = await cluster.answered("im.cli.flood", 60, timeout_s=60)
    by_kind: dict[str, list[str]] = {"final": [], "notice": []}
    for answer in answers:
        by_kind[answer["kind"]] += answer["in_reply_to"]
    assert sorted(by_kind["final"] + by_kind["notice"]) == sorted(f"f{n}" for n in range(60))
    assert len(by_kind["notice"]) == 10


async def test_commands_never_wait_and_are_answered_anywhere(cluster: Cluster) -> None:
    """R3: on the command subject and as an ordinary message; a busy worker answers at once."""
    await cluster.start("agent_worker", POSTHOUSE_SLOTS="1")
    await cluster.say("im.cli.busy", '!tool count {"name": "slow", "seconds": 30}')
    await cluster.say("im.cli.local", "/help", id="h1")
    (answer,) = await cluster.answered("im.cli.local", timeout_s=8)
    assert answer["kind"] == "notice"
    assert answer["in_reply_to"] == ["h1"]
    body = json.dumps({"content": "/status", "id": "s1"}).encode()
    await cluster.js.publish("command.im.cli.busy", body)
    (status,) = await cluster.answered("im.cli.busy", timeout_s=8)
    assert status["in_reply_to"] == ["s1"]
    await cluster.js.publish("command.im.cli.busy", json.dumps({"content": "/stop"}).encode())
    finals = await cluster.answered("im.cli.busy", 3, timeout_s=8)
    assert {answer["kind"] for answer in finals} == {"notice", "final"}


async def test_new_starts_a_new_history(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    await cluster.say("im.cli.local", "17*23+4")
    await cluster.answered("im.cli.local")
    await cluster.js.publish("command.im.cli.local", json.dumps({"content": "/new"}).encode())
    await cluster.answered("im.cli.local", 2)
    await cluster.say("im.cli.local", "我上一条消息是什么？")
    answers = await cluster.answered("im.cli.local", 3)
    assert "17*23+4" not in answers[2]["content"]
    # A command has no language of its own: it is answered in that of the conversation.
    await cluster.js.publish("command.im.cli.local", json.dumps({"content": "/status"}).encode())
    status = (await cluster.answered("im.cli.local", 4))[3]
    assert language_of(status["content"]) == "zh"


async def test_chat_messages_that_wait_are_merged(cluster: Cluster) -> None:
    """Queue mode ``collect`` of IM channels: one turn, one final that names them all."""
    await cluster.start("agent_worker")
    key = "im.feishu.oc_x"
    await cluster.say(key, '!tool count {"name": "slow", "seconds": 3}', id="m1")
    await eventually(lambda: cluster.counted(), 20)
    await cluster.say(key, "2+3", id="m2")
    await cluster.say(key, "what time is it?", id="m3")
    answers = await cluster.answered(key, 2)
    assert [answer["in_reply_to"] for answer in answers] == [["m1"], ["m2", "m3"]]
    assert "5" in answers[1]["content"]


async def test_a_repeated_message_is_answered_once(cluster: Cluster) -> None:
    """R4: the same id again, with another stream sequence, is the same message."""
    worker = await cluster.start("agent_worker")
    for _ in range(2):
        await cluster.say("im.cli.local", "2+3", id="m1")
    await cluster.answered("im.cli.local")
    await cluster.say("im.cli.local", "2+3", id="m1")
    assert await worker.stop() == 0
    await cluster.start("agent_worker")
    await cluster.say("im.cli.local", "2+3", id="m1")
    await cluster.say("im.cli.local", "3+4", id="m2")
    answers = await cluster.answered("im.cli.local", 2)
    assert [answer["in_reply_to"] for answer in answers] == [["m1"], ["m2"]]


LONG = {
    "spaces": "total" + " " * 4000 + "42",
    "newlines": "a" + "\n" * 100_000 + "b",
    "digits": "7" * 200_000,
    "words": "and " * 60_000,
    "quotes": '"' * 120_000,
    "controls": "\u0001" * 40_000,
    "chinese": "时" * 80_000,
    "nearly too large": "x" * 260_000,
}


async def test_long_messages_are_answered_and_hold_nobody_up(cluster: Cluster) -> None:
    """Up to the limit of 256 kB; the history keeps their head and tail."""
    await cluster.start("agent_worker")
    for number, content in enumerate(LONG.values()):
        await cluster.say(f"im.cli.long{number}", content, id=f"m{number}")
        await cluster.say(f"im.cli.long{number}", "2+3", id=f"n{number}")
    await cluster.say("im.cli.other", "2+3")
    await cluster.answered("im.cli.other", timeout_s=20)
    for number, name in enumerate(LONG):
        answers = await cluster.answered(f"im.cli.long{number}", 2, timeout_s=40)
        assert [a["in_reply_to"] for a in answers] == [[f"m{number}"], [f"n{number}"]], name
        assert "error" not in answers[0], name
        assert "5" in answers[1]["content"], name


async def test_a_subscriber_sees_each_answer_once(cluster: Cluster) -> None:
    """Also without reading the stream, while two workers take turns."""
    for _ in range(2):
        await cluster.start("agent_worker")
    subscription = await (await cluster.nats.connect()).subscribe("outbound.im.cli.local")
    for number in range(12):
        await cluster.say("im.cli.local", f"{number}+1", id=f"m{number}")
        answer = json.loads((await subscription.next_msg(timeout=15)).data)
        assert answer["in_reply_to"] == [f"m{number}"]
        # Longer than a report takes: a person, or a program that thinks.
        await eventually(lambda: _all_reported(cluster))


async def _all_reported(cluster: Cluster) -> bool:
    (row,) = await cluster.rows("select count(*) from outbound where not published")
    return bool(row["count"] == 0)

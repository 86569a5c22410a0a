"""Messages by a bare NATS client, answers read from the stream (must-show 2 and 3)."""

import json
from typing import Any

import pytest

from posthouse import streams, subjects
from posthouse.address import Address
from tests.support.cluster import Cluster
from tests.support.wait import eventually


async def test_a_bare_message_is_answered(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    await cluster.say("im.cli.local", "what time is it?")
    (answer,) = await cluster.answered("im.cli.local")
    assert answer["kind"] == "final"
    assert answer["seq"] == 1
    assert answer["tools_used"] == ["current_time"]
    assert answer["to"] == answer["conversation"] == "im://cli/local"
    (row,) = await cluster.rows("select source_id, state from mailbox")
    assert answer["in_reply_to"] == [row["source_id"]]
    assert row["state"] == "done"


async def test_history_belongs_to_its_conversation(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    await cluster.say("im.cli.local", "17*23+4 等于多少")
    (answer,) = await cluster.answered("im.cli.local")
    assert "395" in answer["content"]
    await cluster.say("im.cli.local", "我上一条消息是什么？")
    await cluster.say("im.cli.other", "我上一条消息是什么？")
    mine = (await cluster.answered("im.cli.local", 2))[1]
    other = (await cluster.answered("im.cli.other"))[0]
    assert "17*23+4" in mine["content"]
    assert "17*23+4" not in other["content"]


async def test_the_legacy_form_works(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    body = {"channel": "feishu", "chat_id": "oc_x", "sender_id": "ou_y", "content": "hi"}
    await cluster.js.publish("inbound.im.feishu.oc_x", json.dumps(body).encode())
    (answer,) = await cluster.answered("im.feishu.oc_x")
    assert answer["to"] == "im://feishu/oc_x"


async def test_an_agent_request_gets_exactly_one_reply(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    client = await cluster.nats.connect()
    replies: list[bytes] = []

    async def on_reply(message: Any) -> None:
        replies.append(message.data)

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=on_reply)
    await client.publish("agent.main", b'{"content":"2+3"}', reply=inbox)
    await eventually(lambda: replies)
    # A second request proves that nothing else was on its way behind the first reply.
    unknown = await client.request("agent.main.poet", b'{"content":"hi"}', timeout=5)
    role = await client.request("agent.main.researcher", b'{"content":"2+3"}', timeout=5)
    unread = await client.request("agent.main.a=2", b'{"content":"hi"}', timeout=5)
    bad = await client.request("agent.main", b"not json", timeout=5)
    (reply,) = replies
    answer = json.loads(reply)
    assert answer["kind"] == "final"
    assert "5" in answer["content"]
    assert "error" not in answer
    assert json.loads(unknown.data)["error"]["code"] == "unknown_role"
    assert "code-reviewer, main, researcher" in json.loads(unknown.data)["content"]
    assert json.loads(role.data)["from"] == "agent://main/researcher"
    assert "5" in json.loads(role.data)["content"]
    assert json.loads(unread.data)["error"]["code"] == "address"
    assert json.loads(bad.data)["error"]["code"] == "bad_message"
    # A request is no conversation: nothing is stored on a subject of a stream.
    assert await cluster.messages(streams.OUTBOUND, "outbound.>") == []


GARBAGE = {
    "not json": b"hello",
    "not an object": b"[1, 2]",
    "wrong type": b'{"content": 7}',
    "too large": b'{"content": "' + b"x" * 300_000 + b'"}',
    "nul": b'{"content": "a\\u0000b"}',
    "raw nul": b'{"content": "a\x00b"}',
    "lone surrogate": b'{"content": "\\ud800"}',
    "not utf-8": b'{"content": "\xff"}',
    "deep": b'{"content": "x", "metadata": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    "unknown scheme": b'{"content": "hi", "from": "mail://a/b"}',
    "another conversation": b'{"content": "hi", "conversation": "im://cli/elsewhere"}',
    "a sender of another channel": b'{"content": "hi", "from": "im://feishu/ou_y"}',
    "a forged cron": b'{"content": "hi", "from": "system://cron"}',
    "empty": b'{"content": "  "}',
    "long id": b'{"content": "hi", "id": "' + b"i" * 9000 + b'"}',
    "no body": b"",
    "bad media": b'{"media": [{"name": "neither url nor object"}]}',
    "infinite": b'{"content": "hi", "time": 1e400}',
}


@pytest.mark.parametrize("order", ["garbage first", "message first"])
async def test_garbage_is_dead_lettered_and_the_next_message_works(
    cluster: Cluster, order: str
) -> None:
    """Stored before the worker starts, so that delivery and look-up both meet garbage."""
    for body in GARBAGE.values():
        if order == "message first":
            await cluster.say("im.cli.local", "2+3")
        await cluster.js.publish("inbound.im.cli.local", body)
    await cluster.say("im.cli.local", "2+3")
    await cluster.start("agent_worker")
    count = 1 + (len(GARBAGE) if order == "message first" else 0)
    await cluster.answered("im.cli.local", count, timeout_s=40)
    dead = await cluster.messages(streams.DLQ, "dlq.inbound.im.cli.local")
    assert len(dead) == len(GARBAGE)
    assert all(headers["Posthouse-Reason"] for headers, _ in dead)
    assert {headers["Posthouse-Subject"] for headers, _ in dead} == {"inbound.im.cli.local"}
    states = await cluster.rows("select state, count(*) from mailbox group by state")
    assert {row["state"]: row["count"] for row in states} == {"done": count, "failed": len(GARBAGE)}


async def test_a_hashed_subject_needs_the_name_in_the_body(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    chat = "群" * 60
    key = "im.cli." + subjects.key(Address.im("cli", chat)).rpartition(".")[2]
    await cluster.say(key, "2+3")
    body = {"content": "2+3", "conversation": f"im://cli/{chat}"}
    await cluster.js.publish(f"inbound.{key}", json.dumps(body).encode())
    (answer,) = await cluster.answered(key)
    assert answer["conversation"] == f"im://cli/{chat}"
    assert len(await cluster.messages(streams.DLQ, f"dlq.inbound.{key}")) == 1

"""Workers that are killed, stopped and woken again (must-show 5; G2, G3, G4)."""

import json
import signal
import time
from collections import Counter, defaultdict

import pytest

from tests.support.cluster import Cluster
from tests.support.processes import ServiceProcess
from tests.support.wait import eventually

RECOVERY_S = 10.0


async def _owner(cluster: Cluster, key: str, workers: list[ServiceProcess]) -> ServiceProcess:
    """The worker that holds a conversation; its name holds its pid."""
    (row,) = await cluster.rows("select owner from conversation where key = $1", key)
    return next(w for w in workers if f"-{w.pid}-" in row["owner"])


async def test_a_turn_goes_on_elsewhere_and_repeats_no_finished_call(cluster: Cluster) -> None:
    workers = [await cluster.start("agent_worker") for _ in range(2)]
    # The second call sleeps, so that the kill comes in mid-turn, after the first one finished.
    first = '!tool count {"name": "first"}'
    second = '!tool count {"name": "second", "seconds": 30}'
    await cluster.say("im.cli.local", f"{first} then {second}", id="m1")
    await eventually(lambda: len(cluster.counted()) == 3, 20)
    owner = await _owner(cluster, "im.cli.local", workers)
    killed = time.monotonic()
    await owner.kill()
    (answer,) = await cluster.answered("im.cli.local", timeout_s=RECOVERY_S)
    assert time.monotonic() - killed < RECOVERY_S
    assert answer["in_reply_to"] == ["m1"]
    # The finished call was not run again, nor was the one with an unknown outcome.
    assert [line.split()[2] for line in cluster.counted()] == ["started", "finished", "started"]
    assert "unknown" in answer["content"]


async def test_every_message_is_answered_once_and_in_order(cluster: Cluster) -> None:
    """200 messages to 20 conversations with two workers, one of them killed."""
    workers = [await cluster.start("agent_worker") for _ in range(2)]
    sent: dict[str, list[str]] = defaultdict(list)
    for number in range(10):
        for chat in range(20):
            key, id_ = f"im.cli.c{chat}", f"c{chat}-{number}"
            await cluster.say(key, f"{chat}*{number}", id=id_)
            sent[key].append(id_)
        if number == 4:
            await workers[0].kill()
    for key, ids in sent.items():
        answers = await cluster.answered(key, len(ids), timeout_s=60)
        assert [answer["in_reply_to"] for answer in answers] == [[id_] for id_ in ids]
        assert [answer["seq"] for answer in answers] == list(range(1, len(ids) + 1))
    rows = await cluster.rows("select state, count(*) from mailbox group by state")
    assert {row["state"]: row["count"] for row in rows} == {"done": 200}


async def test_a_zombie_commits_nothing(cluster: Cluster) -> None:
    workers = [await cluster.start("agent_worker") for _ in range(2)]
    await cluster.say("im.cli.local", '!tool count {"name": "slow", "seconds": 3}', id="m1")
    await eventually(lambda: len(cluster.counted()) == 1, 20)
    zombie = await _owner(cluster, "im.cli.local", workers)
    zombie.signal(signal.SIGSTOP)
    (answer,) = await cluster.answered("im.cli.local", timeout_s=15)
    steps = await cluster.rows("select run_id, n, kind, body, epoch from step order by n")
    zombie.signal(signal.SIGCONT)
    # Its tool call ends after it woke; what it says of it must be refused.
    await eventually(lambda: len(cluster.counted()) == 2, 10)
    await cluster.say("im.cli.local", "2+3", id="m2")
    answers = await cluster.answered("im.cli.local", 2)
    assert [a["in_reply_to"] for a in answers] == [["m1"], ["m2"]]
    assert "unknown" in answers[0]["content"]
    assert answers[0] == answer
    after = await cluster.rows(
        "select run_id, n, kind, body, epoch from step where seq = 1 order by n"
    )
    assert after == steps


async def test_sigterm_hands_over_at_a_step_border(cluster: Cluster) -> None:
    """G8: the turn goes on elsewhere at once, its finished calls are not run again."""
    workers = [await cluster.start("agent_worker") for _ in range(2)]
    calls = [f'!tool count {{"name": "n{n}", "seconds": 1}}' for n in range(4)]
    await cluster.say("im.cli.local", " then ".join(calls), id="m1")
    await eventually(lambda: len(cluster.counted()) == 1, 20)
    owner = await _owner(cluster, "im.cli.local", workers)
    assert await owner.stop() == 0
    (answer,) = await cluster.answered("im.cli.local", timeout_s=15)
    assert answer["tools_used"] == ["count"] * 4 or set(answer["tools_used"]) == {"count"}
    lines = Counter(cluster.counted())
    assert len(lines) == 8
    assert set(lines.values()) == {1}


async def test_everything_restarted_goes_on(cluster: Cluster) -> None:
    worker = await cluster.start("agent_worker")
    await cluster.say("im.cli.local", "17*23+4", id="m1")
    await cluster.answered("im.cli.local")
    await worker.kill()
    await cluster.say("im.cli.local", "what was my last message?", id="m2")
    await cluster.start("agent_worker")
    answers = await cluster.answered("im.cli.local", 2)
    assert "17*23+4" in answers[1]["content"]


async def test_stop_ends_the_running_turn_and_what_waits(cluster: Cluster) -> None:
    await cluster.start("agent_worker")
    await cluster.say("im.cli.local", '!tool count {"name": "long", "seconds": 60}', id="m1")
    await eventually(lambda: len(cluster.counted()) == 1, 20)
    await cluster.say("im.cli.local", "2+3", id="m2")
    await eventually(lambda: _waiting(cluster, 2))
    await cluster.js.publish(
        "command.im.cli.local", json.dumps({"content": "/stop", "id": "c1"}).encode()
    )
    answers = await cluster.answered("im.cli.local", 2, timeout_s=5)
    by_kind = {answer["kind"]: answer for answer in answers}
    assert by_kind["final"]["in_reply_to"] == ["m1"]
    assert by_kind["final"]["error"]["code"] == "cancelled"
    assert set(by_kind["notice"]["in_reply_to"]) == {"c1", "m2"}
    await cluster.say("im.cli.local", "2+3", id="m3")
    assert (await cluster.answered("im.cli.local", 3))[2]["in_reply_to"] == ["m3"]


async def _waiting(cluster: Cluster, count: int) -> bool:
    (row,) = await cluster.rows("select count(*) from mailbox where state = 'waiting'")
    return bool(row["count"] == count)


async def test_events_have_no_gap_and_one_final(cluster: Cluster) -> None:
    workers = [await cluster.start("agent_worker") for _ in range(2)]
    first = '!tool count {"name": "first"}'
    second = '!tool count {"name": "second", "seconds": 2}'
    await cluster.say("im.cli.local", f"{first} then {second}", id="m1")
    await eventually(lambda: len(cluster.counted()) == 3, 20)
    await (await _owner(cluster, "im.cli.local", workers)).kill()
    await cluster.answered("im.cli.local", timeout_s=RECOVERY_S)

    async def finished() -> bool:
        found = await cluster.messages("EVENTS", "events.im.cli.local.*")
        return any(event.get("final") for _, event in found)

    await eventually(finished)
    events = [event for _, event in await cluster.messages("EVENTS", "events.im.cli.local.*")]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    types = [event["event_type"] for event in events]
    assert types[0] == "workflow.accepted"
    assert types[-1] == "workflow.completed"
    assert sum(event["final"] for event in events) == 1
    assert "run.resumed" in types
    epochs = [event["epoch"] for event in events]
    assert epochs == sorted(epochs)


@pytest.mark.parametrize(
    "count",
    [100, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
async def test_messages_one_after_the_other_are_none_refused(cluster: Cluster, count: int) -> None:
    """R1: the limit counts unanswered messages, however long the conversation is."""
    await cluster.start("agent_worker")
    subscription = await (await cluster.nats.connect()).subscribe("outbound.im.cli.local")
    for number in range(count):
        await cluster.say("im.cli.local", f"{number}+1", id=f"m{number}")
        message = await subscription.next_msg(timeout=15)
        answer = json.loads(message.data)
        assert answer["in_reply_to"] == [f"m{number}"]
        assert answer["seq"] == number + 1
    (row,) = await cluster.rows("select count(*) from mailbox where state = 'done'")
    assert row["count"] == count

"""Delivery of one bot on a real NATS server (R17)."""

import asyncio
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from gateway.delivery.parts import idempotency_key
from gateway.delivery.record import Entry, Unknown
from gateway.ports import OutcomeUnknown
from posthouse import subjects
from posthouse.address import Address
from posthouse.errors import PermanentError, TransientError
from tests.integration.gateway.post_office import (
    FakeChannel,
    PostOffice,
    Sent,
    conversation,
    delivering,
    key_of,
    message,
    open_office,
    settled,
)
from tests.support.servers import Nats
from tests.support.wait import eventually


@pytest.fixture
async def office(bus: Nats) -> PostOffice:
    return await open_office(bus)


async def test_messages_arrive_in_order_and_are_recorded(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    for seq in range(1, 21):
        await office.publish(message("a", seq))
    async with delivering(bus, channel):
        await settled(office, "a", 20)
    assert channel.texts("a") == [str(seq) for seq in range(1, 21)]
    assert len(channel.sends) == 20
    record = await office.record("a")
    assert record is not None
    assert (record.generation, record.current, record.unknown) == (1, None, ())


async def test_a_message_published_later_is_delivered(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    async with delivering(bus, channel):
        for seq in (1, 2):
            await office.publish(message("a", seq))
            # Only once the one before is over, when delivery waits for something to do.
            await settled(office, "a", seq)
    assert channel.texts("a") == ["1", "2"]


async def test_the_order_of_publishing_does_not_matter(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    for seq in (1, 4, 3, 2, 5):
        await office.publish(message("a", seq))
    async with delivering(bus, channel):
        await settled(office, "a", 5)
    assert channel.texts("a") == ["1", "2", "3", "4", "5"]
    assert office.asked == []


async def test_every_part_has_its_own_key_and_is_recorded(bus: Nats, office: PostOffice) -> None:
    channel, seen = FakeChannel(), []

    async def look(sent: Sent) -> None:
        record = await office.record("a")
        assert record is not None
        assert record.current is not None
        current = record.current
        seen.append((current.seq, current.part, current.state, current.key))

    channel.before = look
    await office.publish(message("a", 1, "x y z"))
    async with delivering(bus, channel):
        await settled(office, "a", 1)
    keys = [idempotency_key(key_of("a"), 1, 1, part) for part in (1, 2, 3)]
    assert seen == [(1, part, "sending", keys[part - 1]) for part in (1, 2, 3)]
    assert [sent.key for sent in channel.sends] == keys
    assert len(set(keys)) == 3


async def test_expired_message_goes_to_the_dead_letters(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    past = datetime.now(UTC) - timedelta(seconds=1)
    await office.publish(message("a", 1, expires_at=past))
    await office.publish(message("a", 2))
    async with delivering(bus, channel):
        await settled(office, "a", 2)
    assert channel.texts("a") == ["2"]
    [(subject, reason, body)] = await office.dead()
    assert subject == subjects.dead_letter(subjects.outbound(conversation("a")))
    assert (reason, orjson.loads(body)["seq"]) == ("expired", 1)


async def test_permanent_failure_is_dead_lettered_and_the_next_goes_on(
    bus: Nats, office: PostOffice
) -> None:
    channel = FakeChannel()

    async def refuse(sent: Sent) -> None:
        if sent.text == "bad":
            raise PermanentError("chat is gone")

    channel.before = refuse
    await office.publish(message("a", 1, "good bad never"))
    await office.publish(message("a", 2))
    async with delivering(bus, channel):
        await settled(office, "a", 2)
    assert channel.texts("a") == ["good", "2"]
    [(_, reason, body)] = await office.dead()
    assert (reason, orjson.loads(body)["id"]) == ("chat is gone", "o-a-1")


async def test_passing_failure_is_repeated_in_order(bus: Nats, office: PostOffice) -> None:
    channel, tries = FakeChannel(), []

    async def fail_twice(sent: Sent) -> None:
        tries.append(sent)
        if sent.text == "y" and len(tries) < 4:
            error = TransientError("rate limit")
            error.retry_after_s = 0.1
            raise error

    channel.before = fail_twice
    await office.publish(message("a", 1, "x y z"))
    await office.publish(message("a", 2))
    async with delivering(bus, channel):
        await settled(office, "a", 2)
    assert [sent.text for sent in channel.sends] == ["x", "y", "z", "2"]
    assert len({sent.key for sent in tries if sent.text == "y"}) == 1
    assert await office.dead() == []


async def test_a_channel_that_crashes_is_given_up_after_some_attempts(
    bus: Nats, office: PostOffice
) -> None:
    channel = FakeChannel()

    async def crash(sent: Sent) -> None:
        if sent.text == "1":
            raise KeyError("a bug")

    channel.before = crash
    await office.publish(message("a", 1))
    await office.publish(message("a", 2))
    async with delivering(bus, channel):
        await settled(office, "a", 2, 30)
    assert channel.texts("a") == ["2"]
    [(_, reason, _)] = await office.dead()
    assert "KeyError" in reason


@pytest.mark.parametrize("idempotent", [True, False])
async def test_no_answer_after_the_platform_took_it(
    bus: Nats, office: PostOffice, idempotent: bool
) -> None:
    channel = FakeChannel(idempotent)
    lost: list[Sent] = []

    async def lose_answer(sent: Sent) -> None:
        if sent.text == "y" and not lost:
            lost.append(sent)
            error = OutcomeUnknown("read timeout")
            error.retry_after_s = 0.1
            raise error

    channel.after = lose_answer
    await office.publish(message("a", 1, "x y z"))
    await office.publish(message("a", 2))
    async with delivering(bus, channel):
        await settled(office, "a", 2)
    assert channel.texts("a") == ["x", "y", "z", "2"]
    record = await office.record("a")
    assert record is not None
    assert record.unknown == (() if idempotent else (Unknown(seq=1, part=2),))
    repeats = [sent for sent in channel.sends if sent.text == "y"]
    assert len(repeats) == (2 if idempotent else 1)
    assert len({sent.key for sent in repeats}) == 1


async def test_missing_message_is_fetched_from_memory(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    office.stored[key_of("a"), 2] = message("a", 2)
    await office.publish(message("a", 1))
    await office.publish(message("a", 3))
    async with delivering(bus, channel):
        await settled(office, "a", 3)
    assert channel.texts("a") == ["1", "2", "3"]
    assert [(asked.generation, asked.seq) for asked in office.asked] == [(1, 2)]


async def test_what_memory_does_not_have_is_skipped(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    await office.publish(message("a", 1))
    await office.publish(message("a", 4))
    async with delivering(bus, channel):
        await settled(office, "a", 4)
    assert channel.texts("a") == ["1", "4"]
    assert [asked.seq for asked in office.asked] == [2, 3]


async def test_without_memory_a_gap_waits(bus: Nats) -> None:
    office, channel = await open_office(bus, memory=False), FakeChannel()
    await office.publish(message("a", 1))
    await office.publish(message("a", 3))
    async with delivering(bus, channel):
        await eventually(lambda: channel.texts("a") == ["1"])
        await asyncio.sleep(2)
        assert channel.texts("a") == ["1"]
        office.stored[key_of("a"), 2] = message("a", 2)
        await office.connection.subscribe("memory.delivery.missing", cb=office.answer_missing)
        await settled(office, "a", 3)
    assert channel.texts("a") == ["1", "2", "3"]


async def test_delivered_messages_are_not_delivered_again(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    await office.write_record("a", Entry(generation=1, last=2))
    for seq in (1, 2, 3):
        await office.publish(message("a", seq))
    async with delivering(bus, channel):
        await settled(office, "a", 3)
    assert channel.texts("a") == ["3"]


async def test_a_newer_generation_starts_again_from_its_first(
    bus: Nats, office: PostOffice
) -> None:
    channel = FakeChannel()
    await office.write_record("a", Entry(generation=1, last=7))
    await office.publish(message("a", 1, "new"), generation=2)
    async with delivering(bus, channel):
        await settled(office, "a", 1)
        await office.publish(message("a", 8, "old"), generation=1)
        await eventually(office.dead)
    assert channel.texts("a") == ["new"]
    [(_, reason, body)] = await office.dead()
    assert "restore" in reason
    assert orjson.loads(body)["content"] == "old"


async def test_a_newer_generation_may_go_on_counting(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    await office.write_record("a", Entry(generation=1, last=7))
    office.stored[key_of("a"), 6] = message("a", 6)
    await office.publish(message("a", 7), generation=2)
    async with delivering(bus, channel):
        await settled(office, "a", 7)
    assert channel.texts("a") == ["6", "7"]


async def test_a_lost_record_sends_no_old_messages(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    for seq in (1, 2, 3):
        await office.publish(message("a", seq))
        office.stored[key_of("a"), seq] = message("a", seq)
    async with delivering(bus, channel):
        await settled(office, "a", 3)
        bucket = await office.js.key_value("delivery")
        await bucket.purge(key_of("a"))
        office.stored[key_of("a"), 5] = message("a", 5)
        await office.publish(message("a", 4))
        await office.publish(message("a", 6))
        await settled(office, "a", 6)
    assert channel.texts("a") == ["1", "2", "3", "4", "5", "6"]
    assert [asked.seq for asked in office.asked] == [5]


async def test_what_cannot_be_read_is_dead_lettered(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    subject = subjects.outbound(conversation("a"))
    await office.js.publish(subject, b"not json")
    await office.publish(message("b", 1), subject=subject)
    await office.publish(message("a", None, "no number"))
    await office.publish(message("a", 1))
    async with delivering(bus, channel):
        await settled(office, "a", 1)
    assert [sent.chat for sent in channel.sends] == ["a"]
    reasons = " ".join(letter.reason for letter in await office.dead())
    for part in ("JSON", "another conversation", "needs a seq"):
        assert part in reasons


async def test_long_ids_are_delivered_too(bus: Nats, office: PostOffice) -> None:
    channel, id = FakeChannel(), "长" * 200
    await office.publish(message(id, 1))
    async with delivering(bus, channel):
        await settled(office, id, 1)
    assert channel.texts(id) == ["1"]


async def test_other_bots_messages_are_left_alone(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel()
    other = message("a", 1).model_copy(update={"conversation": Address.im("feishu", "a")})
    await office.publish(other)
    await office.publish(message("a", 1))
    async with delivering(bus, channel):
        await settled(office, "a", 1)
    assert len(channel.sends) == 1

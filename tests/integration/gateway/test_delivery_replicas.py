"""Several replicas, busy conversations, stops and restarts: order and number of sends hold."""

import asyncio

import pytest

from gateway.delivery.record import Current, Entry
from posthouse.embedded.nats import NatsServer
from tests.integration.gateway.post_office import (
    FakeChannel,
    PostOffice,
    Sent,
    delivering,
    message,
    open_office,
    settled,
)
from tests.support.servers import Nats, crash
from tests.support.wait import eventually


@pytest.fixture
async def office(bus: Nats) -> PostOffice:
    return await open_office(bus)


async def test_two_replicas_keep_the_order_and_repeat_nothing(
    bus: Nats, office: PostOffice
) -> None:
    channel = FakeChannel(idempotent=False)

    async def slowly(sent: Sent) -> None:
        await asyncio.sleep(0.01)

    channel.before = slowly
    names = [f"c{n}" for n in range(6)]
    async with delivering(bus, channel), delivering(bus, channel):
        for seq in range(1, 11):
            for name in names:
                await office.publish(message(name, seq))
        for name in names:
            await settled(office, name, 10, 30)
    for name in names:
        assert channel.texts(name) == [str(seq) for seq in range(1, 11)]


async def test_a_hanging_conversation_does_not_hold_the_others(
    bus: Nats, office: PostOffice
) -> None:
    channel, release = FakeChannel(), asyncio.Event()

    async def hang(sent: Sent) -> None:
        if sent.chat == "c0":
            await release.wait()

    channel.before = hang
    names = [f"c{n}" for n in range(20)]
    for name in names:
        for seq in range(1, 11):
            await office.publish(message(name, seq))

    def others_done() -> bool:
        return all(len(channel.texts(name)) == 10 for name in names[1:])

    async with delivering(bus, channel):
        await eventually(others_done, 10)
        assert channel.texts("c0") == []
        release.set()
        await settled(office, "c0", 10, 20)
    for name in names:
        assert channel.texts(name) == [str(seq) for seq in range(1, 11)]


async def test_a_long_backlog_of_one_conversation_flows(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel(idempotent=False)
    for seq in range(1, 101):
        await office.publish(message("a", seq))
    async with delivering(bus, channel), delivering(bus, channel):
        await eventually(lambda: len(channel.sends) == 100, 25)
        await settled(office, "a", 100)
    assert channel.texts("a") == [str(seq) for seq in range(1, 101)]
    assert office.asked == []


async def test_a_restart_of_nats_in_the_middle(
    bus: Nats, office: PostOffice, own_nats: NatsServer
) -> None:
    channel = FakeChannel(idempotent=False)

    async def take_time(sent: Sent) -> None:
        await asyncio.sleep(0.05)

    channel.before = take_time
    names = [f"c{n}" for n in range(4)]
    for seq in range(1, 9):
        for name in names:
            await office.publish(message(name, seq))
    async with delivering(bus, channel), delivering(bus, channel):
        await eventually(lambda: len(channel.sends) >= 6)
        await crash(own_nats)
        await asyncio.sleep(1)
        await own_nats.start()
        await eventually(lambda: office.connection.is_connected, 15)
        for name in names:
            await settled(office, name, 8, 40)
    for name in names:
        record = await office.record(name)
        assert record is not None
        unknown = {str(note.seq) for note in record.unknown}
        texts = channel.texts(name)
        assert texts == sorted(set(texts), key=int)
        assert {*texts, *unknown} == {str(seq) for seq in range(1, 9)}
    assert office.asked == []
    assert await office.dead() == []


async def test_stop_ends_the_send_under_way_and_hands_back_the_rest(
    bus: Nats, office: PostOffice
) -> None:
    channel, begun = FakeChannel(), asyncio.Event()

    async def take_time(sent: Sent) -> None:
        begun.set()
        await asyncio.sleep(0.5)

    channel.before = take_time
    for seq in (1, 2, 3):
        await office.publish(message("a", seq))
    async with delivering(bus, channel) as replica:
        await begun.wait()
        await replica.finish()
        assert channel.texts("a") == ["1"]
        assert await office.last("a") == 1
    channel.before = FakeChannel().before
    async with delivering(bus, channel):
        # Long before ack_wait: they were handed back, not kept.
        await eventually(lambda: channel.texts("a") == ["1", "2", "3"], 1.5)


async def test_a_slow_send_keeps_its_lease(bus: Nats, office: PostOffice) -> None:
    channel = FakeChannel(idempotent=False)

    async def take_longer_than_the_lease(sent: Sent) -> None:
        await asyncio.sleep(4.5)

    channel.before = take_longer_than_the_lease
    await office.publish(message("a", 1))
    async with delivering(bus, channel), delivering(bus, channel):
        await settled(office, "a", 1)
    assert channel.texts("a") == ["1"]
    record = await office.record("a")
    assert record is not None
    assert record.unknown == ()


async def test_a_sender_that_lost_the_conversation_stops(bus: Nats, office: PostOffice) -> None:
    channel, begun = FakeChannel(idempotent=False), asyncio.Event()

    async def hang(sent: Sent) -> None:
        begun.set()
        await asyncio.Event().wait()

    channel.before = hang
    await office.publish(message("a", 1, "x y"))
    async with delivering(bus, channel):
        await begun.wait()
        channel.before = FakeChannel().before
        theirs = Current(seq=1, part=1, state="unknown", owner="other", until=0)
        await office.write_record("a", Entry(generation=1, current=theirs))
        await settled(office, "a", 1)
    assert channel.texts("a") == ["y"]

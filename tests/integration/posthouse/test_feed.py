"""The feed of events on a real NATS server."""

import asyncio
import time
from collections.abc import AsyncIterator

import orjson
import pytest
from nats.js import JetStreamContext

from posthouse import batches, streams, subjects
from posthouse.address import Address
from posthouse.batches import BATCH
from posthouse.embedded.nats import NatsServer
from posthouse.errors import Unavailable
from posthouse.feed import BEGINNING, Arrived, EventFeed, Place
from tests.support.publisher import EventPublisher
from tests.support.servers import Nats, crash
from tests.support.wait import eventually

DEMO = Address.im("web", "demo")
WAIT_S = 30.0


class Reader:
    """A feed on a connection of its own, and what it brought."""

    def __init__(self, feed: EventFeed) -> None:
        self.feed = feed

    async def take(self, count: int) -> list[Arrived]:
        """The next ``count`` events."""
        found: list[Arrived] = []
        async with asyncio.timeout(WAIT_S):
            async for arrived in self.feed:
                found.append(arrived)
                if len(found) == count:
                    break
        return found

    async def texts(self, count: int) -> list[str]:
        """What the next ``count`` deltas say."""
        return [arrived.event.payload["text"] for arrived in await self.take(count)]


@pytest.fixture
async def js(bus: Nats) -> JetStreamContext:
    return await bus.jetstream()


@pytest.fixture
async def publisher(js: JetStreamContext) -> EventPublisher:
    return EventPublisher(js, DEMO, "w1")


async def consumers(js: JetStreamContext) -> int:
    return (await js.stream_info(streams.EVENTS)).state.consumer_count


async def read_from(bus: Nats, after: Place | None, count: int) -> list[Arrived]:
    async with EventFeed(await bus.connect(), after=after) as feed:
        return await Reader(feed).take(count)


async def test_only_what_comes_from_now_on(bus: Nats, publisher: EventPublisher) -> None:
    await publisher.delta("before")
    async with EventFeed(await bus.connect(), subjects.events_of(DEMO)) as feed:
        await publisher.delta("你好")
        [arrived] = await Reader(feed).take(1)
    assert (arrived.key, arrived.place.seq) == ("im.web.demo", 2)
    assert arrived.event.payload == {"text": "你好", "iteration": 1}


async def test_from_the_beginning(bus: Nats, publisher: EventPublisher) -> None:
    for text in "abc":
        await publisher.delta(text)
    async with EventFeed(await bus.connect(), after=BEGINNING) as feed:
        assert await Reader(feed).texts(3) == ["a", "b", "c"]


async def test_other_conversations_are_left_out(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher
) -> None:
    async with EventFeed(await bus.connect(), subjects.events_of(DEMO)) as feed:
        await EventPublisher(js, Address.im("web", "demo2"), "w2").delta("theirs")
        await publisher.delta("ours")
        assert await Reader(feed).texts(1) == ["ours"]


async def test_resumed_without_gap_or_repeat_under_a_fast_publisher(
    bus: Nats, publisher: EventPublisher
) -> None:
    total = 4 * BATCH

    async def publish() -> None:
        for number in range(total):
            await publisher.delta(str(number))

    publishing = asyncio.create_task(publish())
    after, found = BEGINNING, list[str]()
    while len(found) < total:
        count = min(137, total - len(found))
        part = await read_from(bus, after, count)
        found += [arrived.event.payload["text"] for arrived in part]
        after = part[-1].place
    await publishing
    assert found == [str(number) for number in range(total)]


async def test_a_place_of_another_generation_reads_from_the_oldest(
    bus: Nats, publisher: EventPublisher
) -> None:
    await publisher.delta("a")
    [first] = await read_from(bus, Place(1, 10**17), 1)
    assert first.event.payload["text"] == "a"
    assert first.place.generation > 1


async def test_a_place_beyond_the_end_waits_for_the_next(
    bus: Nats, publisher: EventPublisher
) -> None:
    await publisher.delta("a")
    [first] = await read_from(bus, BEGINNING, 1)
    async with EventFeed(await bus.connect(), after=first.place._replace(seq=10**17)) as feed:
        await publisher.delta("b")
        assert await Reader(feed).texts(1) == ["b"]


async def test_it_goes_on_after_a_killed_server(
    bus: Nats, own_nats: NatsServer, publisher: EventPublisher
) -> None:
    async with EventFeed(await bus.connect()) as feed:
        await publisher.delta("a")
        [first] = await Reader(feed).take(1)
        await crash(own_nats)
        assert await feed.next() is None
        await own_nats.start()

        async def published() -> bool:
            return await again.delta("b") > 0

        js = await bus.jetstream()
        # The feed itself creates the stream that the restart took.
        reading = asyncio.create_task(Reader(feed).take(1))
        again = EventPublisher(js, DEMO, "w2")
        await eventually(lambda: exists(js), WAIT_S)
        assert await published()
        [second] = await reading
    assert second.event.payload["text"] == "b"
    assert second.place.generation > first.place.generation


async def exists(js: JetStreamContext) -> bool:
    return streams.EVENTS in [info.config.name for info in await js.streams_info()]


async def test_it_begins_with_unavailable_while_nats_is_away(
    bus: Nats, own_nats: NatsServer
) -> None:
    connection = await bus.connect()
    await crash(own_nats)
    with pytest.raises(Unavailable):
        async with EventFeed(connection):
            pass
    await own_nats.start()


async def test_a_consumer_deleted_behind_its_back_costs_nothing(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher
) -> None:
    async with EventFeed(await bus.connect()) as feed:
        await publisher.delta("a")
        reader = Reader(feed)
        assert await reader.texts(1) == ["a"]
        [consumer] = await js.consumers_info(streams.EVENTS)
        await js.delete_consumer(streams.EVENTS, consumer.name)
        await publisher.delta("b")
        began = time.monotonic()
        assert await reader.texts(1) == ["b"]
        assert time.monotonic() - began < WAIT_S / 2


async def test_a_slow_reader_gets_everything_and_holds_little(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher
) -> None:
    connection = await bus.connect()
    total = 3 * BATCH
    async with EventFeed(connection) as feed:
        assert await feed.next(0.01) is None
        for number in range(total):
            await publisher.delta(str(number))
        # All are stored and the reader slept: what has come is what it asked for.
        assert await feed.next() is not None
        held = sum(subscription.pending_msgs for subscription in connection._subs.values())
        assert held <= BATCH
        before = await js.consumers_info(streams.EVENTS)
        assert await Reader(feed).texts(total - 1) == [str(n) for n in range(1, total)]
        assert [c.name for c in await js.consumers_info(streams.EVENTS)] == [before[0].name]


async def test_large_events_come_in_batches_too(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher
) -> None:
    async with EventFeed(await bus.connect()) as feed:
        before = await js.consumers_info(streams.EVENTS)
        for number in range(12):
            await publisher.publish("text.delta", text=str(number), filler="x" * 900_000)
        assert await Reader(feed).texts(12) == [str(n) for n in range(12)]
        assert [c.name for c in await js.consumers_info(streams.EVENTS)] == [before[0].name]


async def test_a_quiet_feed_asks_again_and_again(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = orjson.loads(batches._ASK) | {"expires": 3 * 10**8, "idle_heartbeat": 10**8}
    monkeypatch.setattr(batches, "_ASK", orjson.dumps(ask))
    async with EventFeed(await bus.connect()) as feed:
        before = await js.consumers_info(streams.EVENTS)
        quiet_until = time.monotonic() + 1
        while time.monotonic() < quiet_until:
            assert await feed.next(0.05) is None
        await publisher.delta("a")
        assert await Reader(feed).texts(1) == ["a"]
        assert [c.name for c in await js.consumers_info(streams.EVENTS)] == [before[0].name]


async def test_silence_counts_as_a_lost_consumer(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "SILENCE_S", 0.2)
    async with EventFeed(await bus.connect()) as feed:
        [before] = await js.consumers_info(streams.EVENTS)

        async def renewed() -> bool:
            assert await feed.next(0.05) is None
            return before.name not in [c.name for c in await js.consumers_info(streams.EVENTS)]

        await eventually(renewed, WAIT_S)
        await publisher.delta("a")
        assert await Reader(feed).texts(1) == ["a"]


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"seq": "x"}', b"\xff", b"null"])
async def test_garbage_is_passed_over(
    bus: Nats, js: JetStreamContext, publisher: EventPublisher, garbage: bytes
) -> None:
    async with EventFeed(await bus.connect()) as feed:
        await js.publish("events.im.web.demo.w1", garbage)
        await js.publish("events.x", garbage, headers={"Status": "404"})
        await publisher.delta("a")
        [arrived] = await Reader(feed).take(1)
    assert arrived.place.seq == 3


async def test_cancelled_it_ends_at_once_and_leaves_nothing(
    bus: Nats, js: JetStreamContext
) -> None:
    connection = await bus.connect()
    opened = asyncio.Event()

    async def read() -> None:
        async with EventFeed(connection) as feed:
            opened.set()
            async for _ in feed:
                pass

    task = asyncio.create_task(read())
    await opened.wait()
    assert await consumers(js) == 1
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=2)
    assert done
    assert task.cancelled()

    async def nothing_left() -> bool:
        return await consumers(js) == 0

    await eventually(nothing_left, 5)
    # One inbox is that of requests and replies.
    assert len(connection._subs) <= 1


@pytest.fixture
async def feeds(bus: Nats) -> AsyncIterator[list[EventFeed]]:
    """Many, on one connection."""
    connection = await bus.connect()
    opened = [EventFeed(connection, after=BEGINNING) for _ in range(50)]
    await asyncio.gather(*(feed.__aenter__() for feed in opened))
    yield opened
    for feed in opened:
        await feed.__aexit__(None, None, None)


async def test_many_on_one_connection(feeds: list[EventFeed], publisher: EventPublisher) -> None:
    for text in "abc":
        await publisher.delta(text)
    found = await asyncio.gather(*(Reader(feed).texts(3) for feed in feeds))
    assert found == [["a", "b", "c"]] * len(feeds)

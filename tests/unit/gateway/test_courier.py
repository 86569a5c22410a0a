"""What a courier does besides sending."""

from datetime import UTC, datetime

import pytest

from gateway.delivery.record import Current, Entry, Unknown
from gateway.ports import Stored
from posthouse.errors import TransientError
from tests.unit.gateway.fakes import (
    KEY,
    Clock,
    FakeChannel,
    FakeParcel,
    FakeRecords,
    FakeWorld,
    courier,
    letter,
    message,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Scene:
    """A courier and all it works with."""

    def __init__(self, idempotent: bool = True) -> None:
        self.channel = FakeChannel(idempotent)
        self.records = FakeRecords()
        self.world = FakeWorld()
        self.clock = Clock()
        self.courier = courier(self.channel, self.records, self.world, self.clock)

    def begin_with(self, entry: Entry) -> None:
        self.records.entries[KEY] = Stored(entry, 1)

    @property
    def entry(self) -> Entry:
        entry = self.records.entries[KEY].entry
        assert entry is not None
        return entry


async def test_an_expired_message_whose_part_was_lost_is_noted() -> None:
    scene = Scene(idempotent=False)
    broken = Current(seq=1, part=1, state="sending", owner="gone")
    scene.begin_with(Entry(generation=1, current=broken))
    assert await scene.courier.deliver(letter(message(1, "x y", expires_at=LONG_AGO))) is None
    assert scene.entry.unknown == (Unknown(seq=1, part=1),)
    assert (scene.entry.last, scene.channel.sends) == (1, [])
    assert scene.world.dead == [("delivery:im.web.a:1:1", "expired")]


async def test_the_last_part_lost_ends_the_message() -> None:
    scene = Scene(idempotent=False)
    broken = Current(seq=1, part=2, state="sending", owner="gone")
    scene.begin_with(Entry(generation=1, current=broken))
    assert await scene.courier.deliver(letter(message(1, "x y"))) is None
    assert scene.entry.unknown == (Unknown(seq=1, part=2),)
    assert (scene.entry.last, scene.channel.sends) == (1, [])


async def test_pauses_grow_with_the_failures_and_outlive_the_replica() -> None:
    scene, pauses = Scene(), []

    def fail(when: str) -> None:
        error = TransientError("rate limit")
        error.retry_after_s = 0.5
        raise error

    scene.channel.fault = fail
    for replica in range(9):
        scene.courier = courier(
            scene.channel, scene.records, scene.world, scene.clock, f"r{replica}"
        )
        pause_s = await scene.courier.deliver(letter(message(1)))
        assert pause_s is not None
        pauses.append(pause_s)
        scene.clock.pass_s(pause_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert scene.entry.current is not None
    assert (scene.entry.current.state, scene.entry.current.part) == ("sent", 0)


async def test_the_platforms_own_pause_is_kept() -> None:
    scene = Scene()

    def fail(when: str) -> None:
        error = TransientError("rate limit")
        error.retry_after_s = 300
        raise error

    scene.channel.fault = fail
    assert await scene.courier.deliver(letter(message(1))) == 300
    assert await scene.courier.deliver(letter(message(2))) == pytest.approx(300, abs=1)


async def test_what_fails_for_a_day_is_dead_lettered() -> None:
    scene = Scene()

    def fail(when: str) -> None:
        raise TransientError("platform is down")

    scene.channel.fault = fail
    current = letter(message(1))
    assert await scene.courier.deliver(current) is not None
    scene.clock.pass_s(25 * 3600)
    assert await scene.courier.deliver(current) is None
    assert scene.world.dead == [("delivery:im.web.a:1:1", "given up: platform is down")]
    assert scene.entry.last == 1


@pytest.mark.parametrize("text", [" ", ""])
async def test_a_channel_that_has_nothing_to_send_is_visible(text: str) -> None:
    scene = Scene()
    body = message(1).model_copy(update={"content": text})
    assert await scene.courier.deliver(letter(body)) is None
    assert [reason for _, reason in scene.world.dead] == [
        "the channel has nothing to send of the message"
    ]


async def test_without_a_record_the_stream_says_where_to_begin() -> None:
    scene = Scene()
    scene.world.unfinished = FakeParcel(message(5).to_wire())
    scene.world.stored = {seq: message(seq) for seq in range(1, 8)}
    assert await scene.courier.deliver(letter(message(7))) is not None  # begins, 5 is a gap
    scene.clock.pass_s(60)
    assert await scene.courier.deliver(letter(message(7))) is None
    assert scene.channel.shown() == ["5", "6", "7"]
    assert scene.world.asked == [5, 6]
    assert scene.entry.floor == 4
    assert await scene.courier.deliver(letter(message(4))) is None
    assert [name for name, _ in scene.world.dead] == ["delivery:im.web.a:1:4"]


@pytest.mark.parametrize("unfinished", [None, FakeParcel(b"not json")])
async def test_without_a_record_and_without_help_it_begins_with_what_came(
    unfinished: FakeParcel | None,
) -> None:
    scene = Scene()
    scene.world.unfinished = unfinished
    assert await scene.courier.deliver(letter(message(7))) is None
    assert (scene.channel.shown(), scene.entry.floor) == (["7"], 6)


async def test_a_skipped_message_that_comes_after_all_is_not_lost_silently() -> None:
    scene = Scene()
    scene.begin_with(Entry(generation=1, last=1))
    assert await scene.courier.deliver(letter(message(4))) is None
    assert (scene.world.asked, scene.channel.shown()) == ([2, 3], ["4"])
    assert await scene.courier.deliver(letter(message(2))) is None
    assert scene.channel.shown() == ["4"]
    assert [name for name, _ in scene.world.dead] == ["delivery:im.web.a:1:2"]
    assert await scene.courier.deliver(letter(message(4))) is None
    assert len(scene.world.dead) == 1


async def test_memory_that_is_down_or_confused_is_waited_for() -> None:
    scene = Scene()
    scene.begin_with(Entry(generation=1, last=1))
    scene.world.down = True
    assert await scene.courier.deliver(letter(message(3))) == 2.0
    scene.world.down = False
    scene.world.stored[2] = message(9)

    async def another(key: str, generation: int, seq: int) -> object:
        found = await FakeWorld.missing(scene.world, key, generation, seq)
        assert found is not None
        return found.model_copy(update={"seq": 9})

    scene.world.missing = another  # type: ignore[method-assign,assignment]
    assert await scene.courier.deliver(letter(message(3))) == 2.0
    assert (scene.entry.last, scene.channel.sends) == (1, [])


async def test_a_gap_whose_message_fails_holds_what_follows() -> None:
    scene = Scene()
    scene.begin_with(Entry(generation=1, last=1))
    scene.world.stored[2] = message(2)

    def fail(when: str) -> None:
        raise TransientError("rate limit")

    scene.channel.fault = fail
    assert await scene.courier.deliver(letter(message(3))) == 2.0
    assert scene.entry.last == 1
    scene.channel.fault = lambda when: None
    scene.clock.pass_s(60)
    assert await scene.courier.deliver(letter(message(3))) is None
    assert scene.channel.shown() == ["2", "3"]


async def test_only_the_newest_unknown_parts_are_noted() -> None:
    entry = Entry(generation=1)
    for seq in range(1, 31):
        entry = entry.mark_unknown(seq, 1)
    assert [note.seq for note in entry.unknown] == list(range(11, 31))
    assert Entry.model_validate_json(entry.to_value()) == entry

"""Reading outbound messages, and the keys of their parts."""

from datetime import UTC, datetime

import orjson
import pytest

from gateway.delivery.letter import milliseconds, read
from gateway.delivery.parts import idempotency_key
from posthouse.bus import GENERATION
from posthouse.errors import BadMessage
from tests.unit.gateway.fakes import FakeParcel, letter, message


def test_a_message_is_read() -> None:
    expires = datetime(2026, 2, 1, tzinfo=UTC)
    body = message(3, "hi", expires_at=expires)
    parcel = FakeParcel(body.to_wire(), headers={GENERATION: "4"}, stream_seq=77, deliveries=2)
    found = read(parcel)
    assert found.message == body
    assert (found.key, found.subject, found.stream_seq) == ("im.web.a", "outbound.im.web.a", 77)
    place = found.arrival
    assert (place.generation, place.seq, place.deliveries) == (4, 3, 2)
    assert (place.published, place.expires) == (1767225600000, milliseconds(expires))
    assert found.name == "delivery:im.web.a:4:3"


def test_without_the_header_it_is_of_the_first_generation() -> None:
    assert read(FakeParcel(message(1).to_wire())).arrival.generation == 1


def with_fields(**fields: object) -> bytes:
    return orjson.dumps({**orjson.loads(message(1).to_wire()), **fields})


@pytest.mark.parametrize(
    "parcel",
    [
        FakeParcel(b""),
        FakeParcel(b"[]"),
        FakeParcel(b"\xff"),
        FakeParcel(with_fields(seq=None)),
        FakeParcel(with_fields(seq=0)),
        FakeParcel(with_fields(seq="x")),
        FakeParcel(with_fields(conversation="im://web/b")),
        FakeParcel(with_fields(conversation="nowhere")),
        FakeParcel(with_fields(), headers={GENERATION: "x"}),
    ],
)
def test_what_cannot_be_delivered_is_refused(parcel: FakeParcel) -> None:
    with pytest.raises(BadMessage) as caught:
        read(parcel)
    assert caught.value.message


def test_times_without_a_zone_are_utc() -> None:
    assert milliseconds(datetime(2026, 1, 1)) == milliseconds(datetime(2026, 1, 1, tzinfo=UTC))


def test_keys_are_stable_and_all_different() -> None:
    # Platforms remember keys for hours: another version of the program must make the same ones.
    assert idempotency_key("im.web.a", 1, 2, 3) == "47c724b9ed56fdaac5ee8e3dc6d1fa87"
    places = [("im.web.a", 1, 2, 3), ("im.web.a", 1, 2, 31), ("im.web.a", 1, 23, 1)]
    places += [("im.web.a", 12, 3, 1), ("im.web.b", 1, 2, 3)]
    assert len({idempotency_key(*place) for place in places}) == len(places)


def test_the_helper_makes_the_generation_asked_for() -> None:
    assert letter(message(1), generation=5).arrival.generation == 5

"""Streams, consumers and buckets on a real NATS server."""

import time

import pytest
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType

from posthouse import streams, subjects
from posthouse.bootstrap import bootstrap, check, generation
from posthouse.bus import close
from posthouse.errors import Drift, Unavailable
from posthouse.streams import CRON, DLQ, EVENTS, INBOUND, OUTBOUND
from tests.support.servers import Nats
from tests.support.wait import eventually

DOMAINS = ["web", "feishu+sales"]


@pytest.fixture
async def js(nats: Nats) -> JetStreamContext:
    return await nats.jetstream()


async def test_everything_is_created_and_then_left_alone(js: JetStreamContext) -> None:
    assert await bootstrap(js, DOMAINS) == []
    created = {name: await generation(js, name) for name in (INBOUND, OUTBOUND, EVENTS, CRON, DLQ)}
    await js.publish("inbound.im.cli.local", b"kept")
    assert await bootstrap(js, DOMAINS) == []
    assert created == {name: await generation(js, name) for name in created}
    assert (await js.get_msg(INBOUND, 1)).data == b"kept"
    assert await check(js, DOMAINS) == []
    durables = {
        (name, consumer.name) for name in created for consumer in await js.consumers_info(name)
    }
    assert durables == {
        (INBOUND, "turns"),
        (INBOUND, "commands"),
        (CRON, "fires"),
        (OUTBOUND, "deliver-web"),
        (OUTBOUND, "deliver-feishu=2Bsales"),
    }
    for bucket in ("delivery", "schedules"):
        await js.key_value(bucket)


async def test_the_server_keeps_what_is_declared(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    for declared in streams.streams():
        found = (await js.stream_info(str(declared.name))).config
        for field in ("subjects", "retention", "storage", "discard", "max_age", "metadata"):
            wanted, got = getattr(declared, field), getattr(found, field)
            assert got == wanted or (field == "metadata" and wanted.items() <= got.items())


async def test_messages_reach_the_durable_of_their_bot(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    await js.publish("outbound.im.feishu=2Bsales.oc_1", b"x")
    await js.publish("outbound.im.web.c1", b"y")

    async def pending() -> bool:
        durables = [subjects.deliver_durable(domain) for domain in DOMAINS]
        infos = [await js.consumer_info(OUTBOUND, durable) for durable in durables]
        return all(info.num_pending == 1 for info in infos)

    # The server counts a moment after it has acknowledged.
    await eventually(pending)


async def test_a_tunable_difference_is_mended_and_named(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    stream = (await js.stream_info(INBOUND)).config
    stream.max_age, stream.max_msgs_per_subject = 60.0, 5
    stream.duplicate_window = 60.0
    await js.update_stream(stream)
    consumer = (await js.consumer_info(INBOUND, "turns")).config
    consumer.max_ack_pending = 1
    await js.add_consumer(INBOUND, consumer)

    warned = {(d.asset, d.field) for d in await check(js, DOMAINS)}
    assert warned == {
        ("stream INBOUND", "max_age"),
        ("stream INBOUND", "max_msgs_per_subject"),
        ("stream INBOUND", "duplicate_window"),
        ("consumer turns on INBOUND", "max_ack_pending"),
    }
    tuned = await bootstrap(js, DOMAINS)
    assert {(d.asset, d.field) for d in tuned} == warned
    assert not any(d.incompatible for d in tuned)
    assert await check(js, DOMAINS) == []


async def test_an_incompatible_stream_is_refused_and_not_touched(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    await js.delete_stream(DLQ)
    wrong = next(config for config in streams.streams() if config.name == DLQ)
    wrong.retention, wrong.storage = RetentionPolicy.WORK_QUEUE, StorageType.MEMORY
    await js.add_stream(wrong)
    for refuse in (bootstrap, check):
        with pytest.raises(Drift, match="stream DLQ") as caught:
            await refuse(js, DOMAINS)
        assert "retention" in caught.value.message
        assert "storage" in caught.value.message
        assert caught.value.details["assets"] == ["stream DLQ", "stream DLQ"]
    assert (await js.stream_info(DLQ)).config.retention == RetentionPolicy.WORK_QUEUE


async def test_an_incompatible_consumer_is_refused(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    await js.delete_consumer(INBOUND, "turns")
    wrong = next(config for name, config in streams.consumers([]) if config.durable_name == "turns")
    wrong.filter_subject = "inbound.im.>"
    await js.add_consumer(INBOUND, wrong)
    for refuse in (bootstrap, check):
        with pytest.raises(Drift, match="filter_subject"):
            await refuse(js, DOMAINS)


async def test_an_older_schema_is_refused(
    js: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bootstrap(js, DOMAINS)
    monkeypatch.setattr(streams, "SCHEMA", 2)
    with pytest.raises(Drift, match=r"posthouse\.schema is 1"):
        await check(js, DOMAINS)


async def test_events_are_created_by_whoever_misses_them(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    await js.delete_stream(EVENTS)
    assert await check(js, DOMAINS) == []
    found = (await js.stream_info(EVENTS)).config
    assert found.storage == StorageType.MEMORY


@pytest.mark.parametrize("name", [INBOUND, OUTBOUND, CRON, DLQ])
async def test_another_missing_stream_is_named_with_the_remedy(
    js: JetStreamContext, name: str
) -> None:
    await bootstrap(js, DOMAINS)
    await js.delete_stream(name)
    with pytest.raises(Drift, match=f"stream {name} is missing; run `posthouse bootstrap`"):
        await check(js, DOMAINS)


async def test_a_missing_consumer_is_named_with_the_remedy(js: JetStreamContext) -> None:
    await bootstrap(js, ["web"])
    with pytest.raises(Drift, match=r"deliver-feishu=2Bsales on OUTBOUND is missing; run"):
        await check(js, DOMAINS)
    await bootstrap(js, DOMAINS)
    await check(js, DOMAINS)


async def test_a_recreated_stream_has_another_generation(js: JetStreamContext) -> None:
    await bootstrap(js, DOMAINS)
    before = await generation(js, EVENTS)
    assert abs(before - time.time() * 1000) < 60_000
    await js.delete_stream(EVENTS)
    await bootstrap(js, DOMAINS)
    assert await generation(js, EVENTS) > before


async def test_a_server_that_does_not_answer(nats: Nats) -> None:
    connection = await nats.connect()
    await nats.server.stop()
    for call in (bootstrap, check):
        with pytest.raises(Unavailable):
            await call(connection.jetstream(timeout=0.3), DOMAINS)
    await close(connection)

"""``posthouse bootstrap`` on a real server."""

from nats.js.api import StreamConfig

from posthouse import streams
from tests.support.servers import Nats
from tests.support.stack import run_cli


async def test_it_says_what_it_created_and_then_has_nothing_to_do(nats: Nats) -> None:
    env = {"POSTHOUSE_NATS_URL": nats.url}
    first = await run_cli("bootstrap", env=env)
    assert first.code == 0
    lines = first.out.splitlines()
    assert "created stream INBOUND" in lines
    assert "created consumer turns on INBOUND" in lines
    assert "created consumer deliver-web on OUTBOUND" in lines
    assert "created bucket delivery" in lines
    second = await run_cli("bootstrap", env=env)
    assert (second.code, second.out) == (
        0,
        "nothing to do: the bus is as this version needs it\n",
    )


async def test_it_says_what_it_tuned(bus: Nats) -> None:
    js = await bus.jetstream()
    await js.delete_consumer(streams.CRON, streams.FIRES)
    config = (await js.stream_info(streams.DLQ)).config
    config.max_age = 7200.0
    await js.update_stream(config)
    result = await run_cli("bootstrap", env={"POSTHOUSE_NATS_URL": bus.url})
    assert result.out.splitlines() == [
        "created consumer fires on CRON",
        "tuned stream DLQ: max_age is 7200.0, declared 2592000.0",
    ]


async def test_a_stream_that_does_not_fit_is_refused(nats: Nats) -> None:
    js = await nats.jetstream()
    await js.add_stream(StreamConfig(name=streams.OUTBOUND, subjects=["other.>"]))
    result = await run_cli("bootstrap", env={"POSTHOUSE_NATS_URL": nats.url})
    assert result.code == 1
    assert "stream OUTBOUND: subjects is" in result.err

"""``heartbeat``: renew, report, adopt, relay; and grace."""

import asyncio
import json

from posthouse.turns import HeartbeatResult
from tests.integration.memory.api import SHORT_S, Api
from tests.integration.memory.requests import (
    KEY,
    commit,
    letter,
    manifest,
    published,
)
from tests.integration.memory.rows import Rows

ALIVE = "select lease_until > clock_timestamp() from conversation where key = $1"


def _keys(result: HeartbeatResult) -> list[str]:
    return [lease.key for lease in result.adopted]


def _relayed(result: HeartbeatResult) -> list[tuple[str, int]]:
    return [(o.key, o.seq) for o in result.relay]


async def test_it_renews(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await rows.expire()
    result = await memory.beat(leases={KEY: lease.epoch})
    assert (result.lost, result.adopted, result.relay) == ([], [], [])
    assert await rows.connection.fetchval(ALIVE, KEY)


async def test_it_tells_what_is_lost(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    assert (await memory.beat("w2", leases={KEY: lease.epoch})).lost == [KEY]
    assert (await memory.beat(leases={KEY: lease.epoch - 1})).lost == [KEY]
    assert (await memory.beat(leases={"im.cli.unknown": 1})).lost == ["im.cli.unknown"]
    await rows.expire()
    await taker.lease(letter(1), worker="w2")
    assert (await memory.beat(leases={KEY: lease.epoch})).lost == [KEY]


async def test_a_lease_that_was_given_up_is_lost(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    assert (await memory.beat(leases={KEY: lease.epoch})).lost == [KEY]


async def test_a_late_renewal_does_not_take_back_what_was_handed_back(
    memory: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.release(lease.epoch)
    before = await rows.snapshot()
    assert (await memory.beat(leases={KEY: lease.epoch})).lost == [KEY]
    assert await rows.snapshot() == before


async def test_it_adopts_what_nobody_renews(memory: Api, taker: Api, rows: Rows) -> None:
    for name in ("a", "b", "c"):
        await memory.lease(letter(1), key=name)
    await rows.expire("a")
    await rows.expire("c")
    result = await taker.beat("w2", adopt=8)
    assert _keys(result) == ["a", "c"]
    assert [(x.epoch, x.took_over, [w.seq for w in x.waiting]) for x in result.adopted] == [
        (2, "w1", [1]),
        (2, "w1", [1]),
    ]
    assert (await rows.conversation("a"))["owner"] == "w2"


async def test_it_adopts_only_as_many_as_asked_and_never_more_than_eight(
    memory: Api, taker: Api, rows: Rows
) -> None:
    for number in range(12):
        await memory.lease(letter(1), key=f"c{number:02}")
        await rows.expire(f"c{number:02}")
    assert len((await memory.beat("w2", adopt=0)).adopted) == 0
    assert len((await taker.beat("w2", adopt=3)).adopted) == 3
    await rows.connection.execute("update conversation set lease_until = '2020-01-01'")
    assert len((await taker.beat("w3", adopt=100)).adopted) == 8


async def test_two_workers_adopt_different_conversations(
    memory: Api, taker: Api, rows: Rows
) -> None:
    for number in range(16):
        await memory.lease(letter(1), key=f"c{number:02}")
        await rows.expire(f"c{number:02}")
    # Long leases, so that the one who comes second finds none that ran out already.
    results = await asyncio.gather(*(_adopt_for_good(rows, f"w{n}") for n in range(2, 6)))
    adopted = [key for keys in results for key in keys]
    assert sorted(adopted) == sorted(set(adopted))
    assert len(adopted) >= 8


async def _adopt_for_good(rows: Rows, worker: str) -> list[str]:
    async with rows.another() as connection, connection.transaction():
        found = await connection.fetchval("select turn_v1.adopt($1, $2, 8)", worker, SHORT_S)
        await connection.execute(
            "update conversation set lease_until = 'infinity' where owner = $1", worker
        )
    return [lease["key"] for lease in json.loads(found)]


async def test_it_skips_what_others_work_on(memory: Api, taker: Api, rows: Rows) -> None:
    for name in ("a", "b"):
        await memory.lease(letter(1), key=name)
        await rows.expire(name)
    async with rows.connection.transaction():
        await rows.connection.execute("select 1 from conversation where key = 'a' for update")
        assert _keys(await taker.beat("w2", adopt=8)) == ["b"]


async def test_published_messages_are_not_sent_again(memory: Api, taker: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1, answers=2))
    await memory.beat(published=[published(1)])
    assert [o.seq for o in (await memory.open(letter(1))).unpublished] == [2]
    assert _relayed(await taker.beat("w2", adopt=1)) == [(KEY, 2)]


async def test_a_message_that_can_never_be_published_is_skipped(memory: Api, taker: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1, answers=2))
    await memory.beat(published=[published(1, failed="too large")])
    assert (await memory.missing(1)).outgoing is None
    assert [o.seq for o in (await memory.open(letter(1))).unpublished] == [2]
    assert _relayed(await taker.beat("w2", adopt=1)) == [(KEY, 2)]


async def test_the_first_report_about_a_message_counts(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    await memory.beat(published=[published(1)])
    await memory.beat("w2", published=[published(1, failed="refused")])
    found = await rows.connection.fetchrow("select published, failed from outbound")
    assert tuple(found or ()) == (True, None)


async def test_reports_about_unknown_messages_are_ignored(memory: Api) -> None:
    await memory.beat(published=[published(7), published(1, key="im.cli.unknown")])


async def test_relay_is_for_messages_that_had_their_time(memory: Api, taker: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    assert (await memory.beat("w2", adopt=1)).relay == []
    assert (await taker.beat("w2", adopt=0)).relay == []
    assert _relayed(await taker.beat("w2", adopt=1)) == [(KEY, 1)]


async def test_a_claimed_message_is_left_to_its_worker_for_a_while(memory: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    await rows.connection.execute("update outbound set created_at = now() - interval '1 h'")
    assert _relayed(await memory.beat("w2", adopt=1)) == [(KEY, 1)]
    assert _relayed(await memory.beat("w3", adopt=1)) == []
    await rows.connection.execute("update outbound set relay_until = now()")
    assert _relayed(await memory.beat("w3", adopt=1)) == [(KEY, 1)]


async def test_relay_takes_the_oldest_five_of_a_conversation(memory: Api, rows: Rows) -> None:
    for key in ("a", "b"):
        lease = await memory.lease(letter(1), key=key)
        await memory.commit(commit(lease.epoch, 1, answers=7, key=key))
    await rows.connection.execute("update outbound set created_at = now() - interval '1 h'")
    first = _relayed(await memory.beat("w2", adopt=1))
    assert first == [(key, seq) for key in ("a", "b") for seq in range(1, 6)]
    # Later ones wait until these are published: order is kept.
    assert _relayed(await memory.beat("w3", adopt=1)) == []
    await memory.beat("w2", published=[published(n, key="a") for n in range(1, 6)])
    assert _relayed(await memory.beat("w3", adopt=1)) == [("a", 6), ("a", 7)]


async def test_two_workers_never_claim_the_same_message(memory: Api, rows: Rows) -> None:
    for number in range(40):
        await memory.notify("n", key=f"c{number:02}")
    await rows.connection.execute("update outbound set created_at = now() - interval '1 h'")
    beats = await asyncio.gather(*(memory.beat(f"w{n}", adopt=1) for n in range(6)))
    claimed = [place for beat in beats for place in _relayed(beat)]
    assert len(claimed) == len(set(claimed)) == 40


async def test_relay_goes_on_behind_what_others_claimed(memory: Api, rows: Rows) -> None:
    for number in range(60):
        await memory.notify("n", key=f"c{number:02}")
    await rows.connection.execute("update outbound set created_at = now() - interval '1 h'")
    assert len((await memory.beat("w2", adopt=1)).relay) == 50
    assert len((await memory.beat("w3", adopt=1)).relay) == 10


async def test_a_worker_that_waits_for_a_claim_does_not_claim_it_again(
    memory: Api, rows: Rows
) -> None:
    """Its look is older than the other's claim."""
    await memory.notify("n")
    await rows.connection.execute("update outbound set created_at = now() - interval '1 h'")
    async with rows.another() as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select turn_v1.relay(3600)")
        assert _relayed(await memory.beat("w3", adopt=1)) == []
        await transaction.commit()
    assert _relayed(await memory.beat("w3", adopt=1)) == []


async def test_nobody_takes_over_while_grace_lasts(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    await rows.expire()
    await rows.start_grace(3600)
    assert (await taker.open(letter(1), worker="w2")).state == "busy"
    beat = await taker.beat("w2", adopt=8)
    assert beat.adopted == []
    assert 3500 < beat.grace_s <= 3600
    assert (await memory.beat(leases={KEY: lease.epoch})).lost == []


async def test_what_was_handed_back_is_adopted_even_in_grace(
    memory: Api, taker: Api, rows: Rows
) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.release(lease.epoch)
    await rows.start_grace(3600)
    result = await taker.beat("w2", adopt=8)
    assert _keys(result) == [KEY]
    assert (result.adopted[0].waiting[0].attempts, result.adopted[0].waiting[0].vanished) == (0, 0)


async def test_calls_follow_grace_too(memory: Api, taker: Api, rows: Rows) -> None:
    await memory.call_open("c", anonymous=True)
    await rows.expire_call("c")
    await rows.start_grace(3600)
    assert (await taker.call_open("c", worker="w2")).state == "joined"


async def test_a_grace_is_followed_by_half_a_minute_without(rows: Rows) -> None:
    await rows.start_grace(10)
    first = await rows.grace()
    await rows.start_grace(10)
    assert await rows.grace() == first
    await rows.connection.execute("update grace set until = now() - interval '29 s'")
    await rows.start_grace(10)
    assert await rows.grace() < first
    await rows.connection.execute("update grace set until = now() - interval '31 s'")
    await rows.start_grace(10)
    assert await rows.grace() > first


async def test_a_restart_starts_a_grace_at_once(rows: Rows) -> None:
    await rows.start_grace(10)
    first = await rows.grace()
    await rows.start_grace(10, restart=True)
    assert await rows.grace() > first


async def test_a_beat_that_adopts_nothing_is_not_flushed(memory: Api, rows: Rows) -> None:
    """Measured: the flush is most of a renewal's time."""
    mode = "show synchronous_commit"
    for adopt, kept in ((0, "off"), (8, "off")):
        async with rows.another() as connection, connection.transaction():
            await connection.execute(
                "select turn_v1.heartbeat('w1', '[]', '[]', '[]', $1, 6, 4)", adopt
            )
            assert await connection.fetchval(mode) == kept
    lease = await memory.lease(letter(1))
    await memory.release(lease.epoch)
    async with rows.another() as connection, connection.transaction():
        await connection.execute("select turn_v1.heartbeat('w1', '[]', '[]', '[]', 8, 6, 4)")
        assert await connection.fetchval(mode) == "on"

"""Many workers on few conversations, all calls at once: no deadlock, and the guarantees hold."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest

from memory.adapters.postgres import PostgresDatabase
from memory.migrations import HEAD
from posthouse import turns
from posthouse.errors import BadRequest, Fenced, TransientError
from tests.integration.memory.api import Api
from tests.integration.memory.guarantees import broken, final
from tests.integration.memory.requests import (
    commit,
    letter,
    manifest,
    outbound,
    published,
    said,
    step,
)
from tests.integration.memory.rows import Rows

KEYS = [f"c{n:02}" for n in range(30)]
WORKERS = 8
TTL_S = 0.4
BEAT_S = 0.1

T = TypeVar("T")


class Stream:
    """The stream of every conversation: what has been published, in order."""

    def __init__(self) -> None:
        self.seqs: dict[str, list[int]] = defaultdict(list)
        self.unread: list[tuple[str, int]] = []

    def publish(self, key: str) -> None:
        """Another message; some worker will read it, in any order."""
        seq = len(self.seqs[key]) + 1
        self.seqs[key].append(seq)
        self.unread.append((key, seq))

    def after(self, key: str, checked: int) -> int | None:
        """The next message of a conversation."""
        return next((seq for seq in self.seqs[key] if seq > checked), None)


class Worker:
    """Does what a worker does, and now and then what it should not."""

    def __init__(self, name: str, api: Api, stream: Stream, seen: Counter[str]) -> None:
        self.name, self.api, self.stream, self.seen = name, api, stream, seen
        self.held: dict[str, int] = {}
        self.reports: list[turns.Published] = []
        self.turns: set[asyncio.Task[None]] = set()
        self.chance = random.Random(name).random

    async def read(self) -> None:
        """Open a message that nobody read, or one that was read before."""
        await self._outsiders()
        if not self.stream.unread:
            return
        index = int(self.chance() * len(self.stream.unread))
        key, seq = self.stream.unread[index]
        if self.chance() < 0.9:
            self.stream.unread.pop(index)
        found = await self.tried(self.api.open(letter(seq), self.name, key))
        if found and found.lease:
            self.start(found.lease)

    async def _outsiders(self) -> None:
        key = KEYS[int(self.chance() * len(KEYS))]
        if self.chance() < 0.05:
            seq = len(self.stream.seqs[key])
            await self.tried(self.api.control("stop" if self.chance() < 0.5 else "new", seq, key))
        if self.chance() < 0.1:
            await self.tried(self.api.notify(f"n{int(self.chance() * 20)}", key))

    async def beat(self, adopt: int = 4) -> None:
        """A heartbeat, as often as a lease needs it."""
        reports, self.reports = self.reports, []
        # Now and then all renewals of a beat are lost: then others adopt what we work on.
        leases = {} if self.chance() < 0.15 else dict(self.held)
        found = await self.tried(self.api.beat(self.name, leases, published=reports, adopt=adopt))
        if found is None:
            return
        for key in found.lost:
            self.held.pop(key, None)
        for lease in found.adopted:
            self.start(lease)
        self.publish(found.relay)

    def publish(self, messages: list[turns.Outgoing]) -> None:
        """They are on the bus; the next beat says so."""
        self.reports += [published(o.seq, key=o.key) for o in messages]

    def start(self, lease: turns.Lease) -> None:
        """Work on a conversation until it is free, or lost."""
        self.held[lease.key] = lease.epoch
        self.publish(lease.unpublished)
        task = asyncio.create_task(self.drain(lease))
        self.turns.add(task)
        task.add_done_callback(self.turns.discard)

    async def drain(self, lease: turns.Lease) -> None:
        """One turn after the other, in the order of the stream."""
        checked, waiting = lease.checked.seq, list(lease.waiting)
        while waiting:
            following = self.stream.after(lease.key, checked)
            if following is not None and following < waiting[0].seq:
                admitted = await self.tried(
                    self.api.admit(lease.epoch, letter(following), lease.key)
                )
                if admitted is None:
                    return
                checked, waiting = following, list(admitted.waiting)
                continue
            checked = max(checked, waiting[0].seq)
            done = await self.turn(lease, [w.seq for w in waiting[:2]], checked)
            if done is None:
                return
            self.publish(done.unpublished)
            waiting = list(done.waiting)
        if self.held.get(lease.key) == lease.epoch:
            self.held.pop(lease.key)

    async def turn(
        self, lease: turns.Lease, seqs: list[int], checked: int
    ) -> turns.CommitResult | None:
        """A turn with parallel steps; it may vanish, be handed back, or go on as a zombie."""
        key, epoch = lease.key, lease.epoch
        begun = await self.tried(self.api.begin(epoch, manifest(*seqs), key))
        if begun is None:
            await self.tried(self.api.release(epoch, key))
            return None
        turn = begun.messages[0].seq
        first = len(begun.steps) + 1
        steps = [step(n, f"{turn}.{n}") for n in range(first, first + 3)]
        await asyncio.gather(
            *(self.tried(self.api.record(epoch, turn, s, key=key)) for s in steps),
            self.tried(self.api.emit(epoch, turn, f"{turn}:emit", key=key)),
        )
        if self.chance() < 0.05:
            return None  # vanished: nobody renews it
        if self.chance() < 0.05:
            await self.tried(self.api.release(epoch, key))
        if self.chance() < 0.05:
            await asyncio.sleep(2 * TTL_S)  # a long pause: perhaps a zombie
        ended = [m.seq for m in begun.messages]
        request = commit(epoch, *ended, key=key, history=[said(str(turn))], checked=checked)
        request = request.model_copy(update={"outbound": [outbound(final(1, ended))]})
        if self.chance() < 0.3:
            await self.tried(self.api.commit(request))  # its answer is lost
        return await self.tried(self.api.commit(request))

    async def tried(self, call: Awaitable[T]) -> T | None:
        """The answer, or None for a refusal that is part of the game.

        A busy machine makes statements late; deadlocks are counted in the end.
        """
        try:
            answer = await call
        except (Fenced, BadRequest, TransientError) as refused:
            self.seen[refused.code] += 1
            return None
        self.seen["ok"] += 1
        return answer


@pytest.fixture
async def crowded(direct_dsn: str, rows: Rows) -> AsyncIterator[PostgresDatabase]:
    """An adapter that has more connections than cores."""
    adapter = PostgresDatabase(direct_dsn, size=16, lease_ttl_s=TTL_S)
    await adapter.start(HEAD)
    yield adapter
    await adapter.stop()


async def _hammer(adapter: PostgresDatabase, seconds: float) -> Counter[str]:
    """Workers at work for some time, then until nothing waits. Counts of answers."""
    loop = asyncio.get_running_loop()
    stream, seen = Stream(), Counter[str]()
    api = Api(adapter, TTL_S, relay_after_s=BEAT_S)
    workers = [Worker(f"w{n}", api, stream, seen) for n in range(WORKERS)]
    end = loop.time() + seconds

    async def beats(worker: Worker) -> None:
        while loop.time() < end:
            await worker.beat()
            await asyncio.sleep(BEAT_S)

    async def reads(worker: Worker) -> None:
        while loop.time() < end:
            stream.publish(KEYS[int(worker.chance() * len(KEYS))])
            await worker.read()

    await asyncio.gather(*(f(w) for w in workers for f in (beats, reads)))
    last = workers[0]
    while stream.unread:
        await last.read()
    for worker in workers:
        while worker.turns:
            await asyncio.wait(worker.turns)
    return seen


async def _finish_all(adapter: PostgresDatabase, rows: Rows) -> None:
    """One worker, to whom nothing happens, ends what is left."""
    stream = Stream()
    worker = Worker("last", Api(adapter, 0.000_001, relay_after_s=0.000_001), stream, Counter())
    worker.chance = lambda: 1.0
    left = "select 1 from mailbox where state = 'waiting' limit 1"
    async with asyncio.timeout(30):
        while await rows.connection.fetchval(left):
            await worker.beat(adopt=8)
            if worker.turns:
                await asyncio.wait(worker.turns)


async def _check(adapter: PostgresDatabase, rows: Rows, seconds: float) -> None:
    seen = await _hammer(adapter, seconds)
    assert await broken(rows) == []
    await _finish_all(adapter, rows)
    assert await broken(rows) == []
    assert seen["ok"] > 100 * seconds
    assert seen["fenced"] > 0
    answers = await rows.connection.fetch(
        "select key, turn_seq, seq from outbound where body->>'content' like 'final%'"
        " order by key, seq"
    )
    for key in KEYS:
        order = [row["turn_seq"] for row in answers if row["key"] == key]
        assert order == sorted(order), key
    assert (
        await rows.connection.fetchval(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        == 0
    )


async def test_all_calls_at_once(crowded: PostgresDatabase, rows: Rows) -> None:
    await _check(crowded, rows, 6)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_all_calls_at_once_for_long(crowded: PostgresDatabase, rows: Rows) -> None:
    await _check(crowded, rows, 120)

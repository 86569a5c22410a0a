"""Every reply fits into one NATS message (1 MB), whatever is stored."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from posthouse import turns
from posthouse.errors import BadMessage, BadRequest
from tests.integration.memory.api import Api
from tests.integration.memory.requests import (
    KEY,
    commit,
    letter,
    manifest,
    outbound,
    said,
    step,
)
from tests.integration.memory.rows import Rows

KB = 1024
# What may be in a step, an outbound or a history message, less its own JSON.
LARGEST = 191 * KB
MAX_REPLY = 1024 * KB - 2 * KB


def _fits(reply: Any) -> bool:
    return len(reply.model_dump_json().encode()) < MAX_REPLY


async def test_a_message_that_is_too_large_is_a_bad_message(memory: Api, rows: Rows) -> None:
    with pytest.raises(BadMessage, match="too large"):
        await memory.open(letter(1, content="x" * 420 * KB))
    assert await rows.states() == {}


@pytest.mark.parametrize("where", ["record", "emit", "notify", "outbound", "history", "finish"])
async def test_what_is_too_large_is_refused(memory: Api, rows: Rows, where: str) -> None:
    text = "x" * 200 * KB
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    await memory.call_open("c", anonymous=True)
    before = await rows.snapshot()
    ending = commit(lease.epoch, 1, history=[said(text)])
    if where == "outbound":
        ending = commit(lease.epoch, 1).model_copy(update={"outbound": [outbound(text)]})
    late: dict[str, Callable[[], Awaitable[Any]]] = {
        "record": lambda: memory.record(lease.epoch, 1, step(1, text)),
        "emit": lambda: memory.emit(lease.epoch, 1, "a", outbound(text)),
        "notify": lambda: memory.notify(text),
        "outbound": lambda: memory.commit(ending),
        "history": lambda: memory.commit(ending),
        "finish": lambda: memory.call_finish("c", 1, text),
    }
    with pytest.raises(BadRequest, match="192 kB"):
        await late[where]()
    assert await rows.snapshot() == before


async def test_the_largest_resume_fits(memory: Api, taker: Api, rows: Rows) -> None:
    lease = await memory.lease(letter(1))
    entries = [said("h" * LARGEST), said("h" * 100)]
    await memory.commit(commit(lease.epoch, 1, history=entries))
    lease = await memory.lease(letter(2, content="m" * 390 * KB))
    await memory.begin(lease.epoch, manifest(2))
    for n in range(1, 7):
        await memory.record(lease.epoch, 2, step(n, "s" * (64 * KB - 100)))
    begun = await memory.begin(lease.epoch, manifest(2))
    assert _fits(begun)
    assert begun.more
    rest = await memory.read(2, after=begun.steps[-1].n)
    assert [s.n for s in begun.steps + rest.steps] == [1, 2, 3, 4, 5, 6]
    assert not rest.more
    assert [len(m["content"]) for m in begun.history] == [LARGEST, 100]


async def test_history_that_does_not_fit_is_cut_at_its_old_end(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    entries = [said(mark * 80 * KB) for mark in "abc"]
    await memory.commit(commit(lease.epoch, 1, history=entries))
    lease = await memory.lease(letter(2))
    begun = await memory.begin(lease.epoch, manifest(2))
    assert [m["content"][0] for m in begun.history] == ["b", "c"]


async def test_only_as_many_messages_as_fit_are_merged(memory: Api) -> None:
    lease = await memory.lease(letter(1, content="m" * 100 * KB))
    for seq in (2, 3):
        await memory.open(letter(seq, content="m" * 100 * KB))
    begun = await memory.begin(lease.epoch, manifest(1, 2, 3))
    assert [m.seq for m in begun.messages] == [1, 2]
    assert [p.seq for p in begun.manifest.positions] == [1, 2]
    done = await memory.commit(commit(lease.epoch, 1, 2))
    assert [(w.seq, w.attempts) for w in done.waiting] == [(3, 0)]


async def test_a_manifest_has_its_limit(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    large = manifest(1).model_copy(update={"budget": {"x": "x" * 70 * KB}})
    with pytest.raises(BadRequest, match="manifest is too large"):
        await memory.begin(lease.epoch, large)


async def _unpublished(memory: Api, key: str, count: int, size: int) -> None:
    lease = await memory.lease(letter(1), key=key)
    await memory.open(letter(2), key=key)
    for n in range(count):
        await memory.begin(lease.epoch, manifest(1), key=key)
        await memory.emit(lease.epoch, 1, str(n), outbound("o" * size), key=key)


async def test_open_and_commit_bring_as_much_unpublished_as_fits(memory: Api) -> None:
    await _unpublished(memory, KEY, count=3, size=LARGEST // 2)
    done = await memory.commit(commit(1, 1))
    assert [o.seq for o in done.unpublished] == [1, 2]


async def test_a_beat_fits_whatever_it_adopts_and_relays(
    memory: Api, taker: Api, rows: Rows
) -> None:
    keys = [f"c{n}" for n in range(8)]
    for key in keys:
        await _unpublished(memory, key, count=2, size=LARGEST)
        await rows.expire(key)
    beat = await taker.beat("w2", adopt=8)
    assert _fits(beat)
    assert [lease.key for lease in beat.adopted] == keys
    assert len(beat.relay) == 1


async def test_relay_comes_to_an_end_with_large_messages(memory: Api, rows: Rows) -> None:
    await _unpublished(memory, KEY, count=4, size=LARGEST)
    await rows.connection.execute("update outbound set created_at = now() - interval '1 h'")
    seen = []
    for _ in range(4):
        beat = await memory.beat("w2", adopt=1)
        seen += [o.seq for o in beat.relay]
        told = [turns.Published(key=o.key, generation=1, seq=o.seq) for o in beat.relay]
        await memory.beat("w2", published=told)
    assert seen == [1, 2, 3, 4]


async def test_a_page_of_history_fits(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1, history=[said("h" * LARGEST)] * 4))
    page = await memory.recall()
    assert _fits(page)
    assert len(page.messages) == 2
    assert len((await memory.recall(before=page.next_before)).messages) == 2


async def test_the_steps_of_a_call_fit(memory: Api, taker: Api, rows: Rows) -> None:
    await memory.call_open("c", anonymous=True)
    for n in range(3):
        await memory.call_record("c", 1, step(n, "s" * LARGEST))
    await rows.expire_call("c")
    resumed = await taker.call_open("c", worker="w2")
    assert ([s.n for s in resumed.steps], resumed.more) == ([0], True)
    rest = await memory.read(9, run_id="c", after=0)
    assert ([s.n for s in rest.steps], rest.more) == ([1], True)

"""Reading back: ``history.recall``, ``turn.read``, ``delivery.missing``."""

from tests.integration.memory.api import Api
from tests.integration.memory.requests import (
    KEY,
    commit,
    letter,
    manifest,
    place,
    published,
    said,
    step,
)


async def _said(memory: Api, count: int, key: str = KEY) -> None:
    lease = await memory.lease(letter(1), key=key)
    entries = [said(f"m{n}") for n in range(1, count + 1)]
    await memory.commit(commit(lease.epoch, 1, key=key, history=entries))


async def test_an_unknown_conversation_has_no_history(memory: Api) -> None:
    found = await memory.recall()
    assert (found.messages, found.next_before) == ([], None)


async def test_a_page_is_in_time_order(memory: Api) -> None:
    await _said(memory, 3)
    found = await memory.recall()
    assert [m.message["content"] for m in found.messages] == ["m1", "m2", "m3"]
    assert found.next_before is None
    assert found.messages[0].time.endswith("Z")


async def test_pages_go_back_without_gap_or_repeat(memory: Api) -> None:
    await _said(memory, 7)
    pages, before = [], None
    while True:
        found = await memory.recall(limit=3, before=before)
        pages.append([m.message["content"] for m in found.messages])
        before = found.next_before
        if before is None:
            break
    assert pages == [["m5", "m6", "m7"], ["m2", "m3", "m4"], ["m1"]]


async def test_a_full_last_page_has_none_before_it(memory: Api) -> None:
    await _said(memory, 3)
    assert (await memory.recall(limit=3)).next_before is None


async def test_conversations_do_not_see_each_other(memory: Api) -> None:
    await _said(memory, 2, key="a")
    await _said(memory, 1, key="b")
    assert len((await memory.recall(key="b")).messages) == 1
    lease = await memory.lease(letter(9), key="b")
    assert len((await memory.begin(lease.epoch, manifest(9), key="b")).history) == 1


async def test_read_goes_on_after_a_step(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.begin(lease.epoch, manifest(1))
    for n in (1, 2, 3):
        await memory.record(lease.epoch, 1, step(n))
    assert [s.n for s in (await memory.read(1, after=1)).steps] == [2, 3]
    everything = await memory.read(1)
    assert [s.kind for s in everything.steps] == ["manifest", "model", "model", "model"]
    assert everything.steps[0].body["positions"] == [place(1).model_dump()]
    assert not everything.more


async def test_the_gateway_gets_what_it_misses(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1, answers=2))
    found = (await memory.missing(2)).outgoing
    assert found is not None
    assert (found.seq, found.body.content) == (2, "answer 1.2")
    await memory.beat(published=[published(2)])
    assert (await memory.missing(2)).outgoing == found


async def test_what_was_never_sent_is_to_be_skipped(memory: Api) -> None:
    lease = await memory.lease(letter(1))
    await memory.commit(commit(lease.epoch, 1))
    assert (await memory.missing(2)).outgoing is None
    assert (await memory.missing(1, generation=2)).outgoing is None
    assert (await memory.missing(1, key="im.cli.unknown")).outgoing is None

"""The memory service as a process, on real NATS and Postgres."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse import subjects, turns
from posthouse.rpc import RpcClient
from tests.integration.memory.requests import KEY, commit, letter, manifest, place, step
from tests.integration.memory.service import MemoryService
from tests.support.servers import Nats

T = turns


@pytest.fixture
async def service(tmp_path: Path, nats: Nats, database: str) -> AsyncIterator[MemoryService]:
    memory = MemoryService(tmp_path, nats.url, database)
    await memory.start()
    yield memory
    await memory.stop()


async def test_a_turn_from_open_to_commit(service: MemoryService, nats: Nats) -> None:
    rpc = RpcClient(await nats.connect())
    opened = await rpc.call(
        subjects.memory("turn", "open"),
        turns.OpenRequest(key=KEY, letter=letter(1), worker="w1"),
        turns.OpenResult,
    )
    assert opened.state == "opened"
    assert opened.lease is not None
    epoch = opened.lease.epoch
    begun = await rpc.call(
        subjects.memory("turn", "begin"),
        turns.BeginRequest(key=KEY, epoch=epoch, worker="w1", manifest=manifest(1)),
        turns.BeginResult,
    )
    assert [m.body.content for m in begun.messages] == ["message 1"]
    await rpc.call(
        subjects.memory("turn", "record"),
        turns.RecordRequest(key=KEY, epoch=epoch, turn=place(1), step=step(1)),
        turns.Ack,
    )
    done = await rpc.call(subjects.memory("turn", "commit"), commit(epoch, 1), turns.CommitResult)
    assert done.freed
    assert [o.body.seq for o in done.unpublished] == [1]

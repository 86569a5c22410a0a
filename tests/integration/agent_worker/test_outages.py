"""NATS and the memory service die under load and come back; no worker is restarted."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.cluster import Cluster
from tests.support.servers import crash

Outage = Callable[[Cluster], Awaitable[None]]


async def _nats_dies(cluster: Cluster) -> None:
    await crash(cluster.nats.server)
    await cluster.nats.server.start()


async def _memory_dies(cluster: Cluster) -> None:
    memory = next(p for p in cluster.processes if p.package == "memory")
    await memory.kill()
    await memory.start()


@pytest.mark.parametrize("outage", [_nats_dies, _memory_dies])
async def test_nothing_is_lost_or_repeated(cluster: Cluster, outage: Outage) -> None:
    for _ in range(2):
        await cluster.start("agent_worker")
    chats = [f"im.cli.c{n}" for n in range(8)]
    for key in chats:
        await cluster.say(key, '!tool count {"name": "slow", "seconds": 2}', id="m1")
        await cluster.say(key, "2+3", id="m2")
    await cluster.answered(chats[0])
    await outage(cluster)
    for key in chats:
        await cluster.say(key, "3+4", id="m3")
    for key in chats:
        answers = await cluster.answered(key, 3, timeout_s=40)
        assert [a["in_reply_to"] for a in answers] == [["m1"], ["m2"], ["m3"]]
        assert [a["seq"] for a in answers] == [1, 2, 3]
    # No turn was taken over: every counting call ran exactly once.
    assert len(cluster.counted()) == 2 * len(chats)

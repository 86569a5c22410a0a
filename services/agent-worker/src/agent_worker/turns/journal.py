"""The engine's journal over ``memory.turn.record``."""

import asyncio
from collections.abc import Callable
from typing import Any

from agent_worker.engine.journal import Recorded
from agent_worker.ports import TurnApi
from posthouse import turns
from posthouse.turns import Controls, Lease, Position, Step

Place = tuple[str, int, int]


class HandOver(Exception):
    """The worker stops: the turn ends at this step border and goes on elsewhere."""


class TurnJournal:
    """Steps of a turn's root run; step 0 is the manifest, ours count from 1.

    A step is stored before ``record`` returns. Raises what TurnApi raises, and HandOver when the
    worker is stopping.
    """

    def __init__(
        self,
        api: TurnApi,
        lease: Lease,
        turn: Position,
        steps: list[Step],
        stopping: asyncio.Event,
        event_seq: Callable[[], int],
        on_controls: Callable[[Controls], None],
    ) -> None:
        self._api = api
        self._lease = lease
        self._turn = turn
        self._stopping = stopping
        self._next = max((step.n for step in steps), default=0) + 1
        self._recorded = {_place(step): Recorded(step.n, step.body) for step in steps}
        self._lock = asyncio.Lock()
        self._event_seq = event_seq
        self._on_controls = on_controls

    def recorded(self, kind: str, iteration: int, index: int = 0) -> Recorded | None:
        """What an earlier attempt recorded."""
        return self._recorded.get((kind, iteration, index))

    async def record(
        self, kind: str, iteration: int, body: dict[str, Any], index: int = 0
    ) -> int | None:
        """Store a step; its number."""
        # One at a time: numbers must reach Postgres in order, or a crash would leave a gap.
        async with self._lock:
            n = self._next
            placed = body | {"iteration": iteration, "index": index}
            answer = await self._api.record(
                turns.RecordRequest(
                    key=self._lease.key,
                    epoch=self._lease.epoch,
                    turn=self._turn,
                    step=Step(n=n, kind=kind, body=placed),
                    event_seq=self._event_seq(),
                )
            )
            self._next = n + 1
        self._on_controls(answer.controls)
        if self._stopping.is_set():
            raise HandOver
        return n


def _place(step: Step) -> Place:
    return step.kind, step.body["iteration"], step.body["index"]

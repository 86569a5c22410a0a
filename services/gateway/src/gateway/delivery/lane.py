"""The messages of one conversation that a replica holds."""

import heapq
import itertools

from gateway.delivery.letter import Letter
from gateway.ports import Parcel


class Lane:
    """Messages of one conversation in the order of their numbers."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Letter, Parcel]] = []
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, letter: Letter, parcel: Parcel) -> None:
        """Add a message."""
        heapq.heappush(self._heap, (*letter.place, next(self._number), letter, parcel))

    def pop(self) -> tuple[Letter, Parcel]:
        """Take the first message."""
        *_, letter, parcel = heapq.heappop(self._heap)
        return letter, parcel

    def may_follow(self, latest: Letter | None) -> bool:
        """Whether the first message may come next behind ``latest``, with no gap between."""
        if not self._heap:
            return False
        return latest is None or self._heap[0][:2] <= (latest.place[0], latest.place[1] + 1)

"""What turns cost and how long they take."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

Work = Callable[[], Awaitable[list[float]]]


@dataclass(frozen=True)
class Measurement:
    """Some turns under one load: latencies in ms sorted upwards, CPU in ms a turn by process."""

    name: str
    latencies: list[float]
    cpu: dict[str, float]
    seconds: float

    def quantile(self, share: float) -> float:
        """The latency that this share of the turns does not exceed, in ms."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]

    def cpu_of(self, names: Collection[str]) -> float:
        """CPU of some of the processes together, in ms a turn."""
        return sum(self.cpu[name] for name in names)

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        turns = len(self.latencies)
        return {
            "name": self.name,
            "turns": turns,
            "turns_per_s": round(turns / self.seconds, 1),
            "p50_ms": round(self.quantile(0.50), 2),
            "p99_ms": round(self.quantile(0.99), 2),
            "cpu_ms_per_turn": {name: round(ms, 3) for name, ms in self.cpu.items()},
        }


async def measure(name: str, pids: Mapping[str, int], work: Work) -> Measurement:
    """Run ``work``, which returns the seconds that each turn took, and count CPU meanwhile."""
    before = {part: _cpu_s(pid) for part, pid in pids.items()}
    started = time.monotonic()
    latencies = await work()
    seconds = time.monotonic() - started
    cpu = {part: (_cpu_s(pid) - before[part]) * 1000 / len(latencies) for part, pid in pids.items()}
    return Measurement(name, sorted(s * 1000 for s in latencies), cpu, seconds)


def _cpu_s(pid: int) -> float:
    """User and system time of a process and all it ever started, in seconds."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Children that ended are in their parent's times.
        total += times.user + times.system + times.children_user + times.children_system
    return total

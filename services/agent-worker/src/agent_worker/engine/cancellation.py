"""Ending a run from outside, with an answer.

Three ways to be cut short must never be confused: ``Cancellation.stop`` (a user's /stop and its
kin: the run answers "cancelled"), the deadline (the run answers so), and the cancelling of the
run's task (shutdown, lost lease: CancelledError leaves ``run`` and nothing is answered).
"""

import asyncio
from types import TracebackType


class Stopped(Exception):
    """The run was stopped; carries the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Cancellation:
    """Stops one run, at once or at its next step border. The first reason counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._sent = False

    def stop(self, reason: str = "user") -> None:
        """End the run; from the same event loop. A run not yet started ends when it starts."""
        if self.reason is not None:
            return
        self.reason = reason
        # From inside the run's own task, the next step border is soon enough.
        if self._task is not None and self._task is not asyncio.current_task():
            self._sent = self._task.cancel()

    def check(self) -> None:
        """A step border. Raises Stopped."""
        if self.reason is not None:
            raise Stopped(self.reason)

    def __enter__(self) -> "Cancellation":
        """Watch the current task: from here on ``stop`` interrupts it."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a run needs a task")
        self._task = task
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Turn our own cancel into Stopped; one from outside beside it passes."""
        task, self._task = self._task, None
        if task is None or not self._sent:
            return
        self._sent = False
        # The same counting that asyncio.timeout does.
        only_ours = task.uncancel() <= self._cancelling
        if only_ours and self.reason is not None and isinstance(error, asyncio.CancelledError):
            raise Stopped(self.reason) from error


def cancelled_from_outside() -> bool:
    """Inside a handler of CancelledError: False if nobody cancelled this task.

    Then a callee awaited something of its own that was cancelled, which is just a failure.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0

"""Waiting in tests: for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

INTERVAL_S = 0.02

T = TypeVar("T")


async def eventually(
    probe: Callable[[], T | Awaitable[T]], timeout_s: float = 10.0, what: str = ""
) -> T:
    """Call ``probe`` until it returns something true, and return that.

    An AssertionError inside the probe means not yet. Raises AssertionError after ``timeout_s``
    seconds.
    """
    deadline = time.monotonic() + timeout_s
    reason: AssertionError | None = None
    while True:
        try:
            result = probe()
            value = await result if inspect.isawaitable(result) else result
            if value:
                return value
        except AssertionError as error:
            reason = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what or probe}") from reason
        await asyncio.sleep(INTERVAL_S)

"""Waiting in tests: for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

INTERVAL_S = 0.02

T = TypeVar("T")


@overload
async def eventually(
    probe: Callable[[], Awaitable[T | None]], timeout_s: float = ..., what: str = ...
) -> T: ...
@overload
async def eventually(
    probe: Callable[[], T | None], timeout_s: float = ..., what: str = ...
) -> T: ...
async def eventually(probe: Callable[[], Any], timeout_s: float = 10.0, what: str = "") -> Any:
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

"""Errors of nats-py, as ours."""

from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors

from posthouse.errors import Unavailable

FOREIGN = (nats.errors.Error, OSError, TimeoutError)


@contextmanager
def unavailable(what: str) -> Iterator[None]:
    """Turn whatever nats-py raises into Unavailable, saying what did not answer."""
    try:
        yield
    except FOREIGN as error:
        raise Unavailable(f"{what} does not answer: {type(error).__name__}") from error

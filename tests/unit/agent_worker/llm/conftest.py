"""A model server for the clients."""

from collections.abc import AsyncIterator

import pytest

from tests.support.model_server import ModelServer, serving


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """A model server."""
    async with serving() as model:
        yield model

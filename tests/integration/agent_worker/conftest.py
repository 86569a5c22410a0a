"""The agent side as processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, run_cluster
from tests.support.servers import Nats


@pytest.fixture
async def cluster(bus: Nats, database: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Memory service on real servers; start workers with ``cluster.start("agent_worker")``."""
    async with run_cluster(bus, database, tmp_path) as running:
        yield running


@pytest.fixture
async def hasty_cluster(bus: Nats, database: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """As ``cluster``, with leases of 2 s, for tests that lose many of them."""
    environment = {"POSTHOUSE_MEMORY__LEASE_TTL_S": "2"}
    async with run_cluster(bus, database, tmp_path, **environment) as running:
        yield running

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

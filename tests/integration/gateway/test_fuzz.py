"""All HTTP endpoints under requests that nobody would write, on real servers."""

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.bootstrap import bootstrap
from tests.support.cluster import Cluster, run_cluster
from tests.support.fuzzing import Fuzzer
from tests.support.processes import ServiceProcess
from tests.support.servers import Nats

TOKEN = "fuzz-token"
BOTS = {"webhook": [{"secret_env": "FUZZ_SECRET"}, {"bot": "shop", "secret_env": "FUZZ_SECRET"}]}
SECRET = f"whsec_{base64.b64encode(bytes(24)).decode()}"
OPERATIONS = 7


@pytest.fixture
async def cluster(bus: Nats, database: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with run_cluster(bus, database, tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def gateway(cluster: Cluster) -> ServiceProcess:
    await bootstrap(cluster.js, ["web", "webhook", "webhook+shop"])
    return await cluster.start(
        "gateway",
        POSTHOUSE_ADMIN_TOKEN=TOKEN,
        POSTHOUSE_CHANNELS=json.dumps(BOTS),
        FUZZ_SECRET=SECRET,
    )


async def fuzzed(gateway: ServiceProcess, examples: int, seed: int) -> Fuzzer:
    """What came of ``examples`` requests to each operation; the log must hold no crash."""
    fuzzer = await asyncio.to_thread(Fuzzer, gateway.health_url, TOKEN)
    await asyncio.to_thread(fuzzer.run, examples, seed)
    log = gateway.log.read_text()
    assert "http.crashed" not in log
    assert "Traceback" not in log
    return fuzzer


async def test_no_request_breaks_the_gateway(gateway: ServiceProcess) -> None:
    fuzzer = await fuzzed(gateway, 20, 1)
    assert len({operation for operation, _ in fuzzer.answers}) == OPERATIONS
    assert {status for _, status in fuzzer.answers} >= {200, 202, 400, 401}


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_thousands_of_requests_do_not_break_it(gateway: ServiceProcess) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    began = time.monotonic()
    fuzzer = await fuzzed(gateway, 600, seed)
    print(f"{fuzzer.total} requests in {time.monotonic() - began:.0f} s: {fuzzer.answers}")
    assert fuzzer.total >= 2000

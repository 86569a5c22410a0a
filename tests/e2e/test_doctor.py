"""``posthouse doctor`` beside a running ``posthouse up``."""

import json

import psutil
import pytest

from tests.support.stack import run_cli, stack
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(300)


async def test_it_finds_the_stack_and_names_the_service_that_hangs() -> None:
    async with stack() as up:
        ready = await up.start()
        memory = psutil.Process(ready["pids"]["memory"])

        async def faults() -> dict[str, str]:
            result = await run_cli("doctor", "--json", "--data-dir", str(up.data_dir))
            report = json.loads(result.out)
            assert result.code == (0 if report["healthy"] else 1)
            return {f["name"]: f["text"] for f in report["findings"] if f["state"] != "ok"}

        async def healthy() -> bool:
            return await faults() == {}

        assert await healthy()
        memory.suspend()
        try:
            found = await faults()
        finally:
            memory.resume()
        assert set(found) == {"memory", "gateway", "agent-worker-1", "agent-worker-2"}
        assert "does not answer" in found["memory"]
        assert "memory: the memory service cannot be used" in found["gateway"]
        await eventually(healthy, 60)

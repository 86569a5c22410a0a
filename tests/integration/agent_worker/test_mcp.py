"""Tools of an MCP server in the turns of a real worker, with a server that is killed."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.cluster import Cluster
from tests.support.processes import ServiceProcess
from tests.support.wait import eventually

PROGRAM = Path(__file__).parents[2] / "support" / "mcp_server.py"
SERVERS = {
    "POSTHOUSE_MCP": json.dumps(
        {"demo": {"command": [sys.executable, str(PROGRAM)]}, "down": {"command": ["/not/there"]}}
    )
}
PATIENCE_S = 40.0


def tool(name: str, **arguments: Any) -> str:
    return f"!tool demo__{name} {json.dumps(arguments, ensure_ascii=False)}"


async def connected(cluster: Cluster) -> ServiceProcess:
    worker = await cluster.start("agent_worker", **SERVERS)
    await eventually(lambda: "mcp.connected" in worker.log.read_text(), PATIENCE_S)
    return worker


async def test_a_server_killed_in_mid_call_costs_an_error_and_no_turn(
    cluster: Cluster, tmp_path: Path
) -> None:
    await connected(cluster)
    began = tmp_path / "began"
    await cluster.say("im.cli.a", tool("slow", started=str(began)))
    await eventually(lambda: began.exists() and began.read_text(), PATIENCE_S)
    os.kill(int(began.read_text()), signal.SIGKILL)
    (answer,) = await cluster.answered("im.cli.a", timeout_s=PATIENCE_S)
    assert answer["tools_used"] == ["demo__slow"]
    assert "the MCP server demo ended during the call" in answer["content"]

    await cluster.say("im.cli.a", tool("echo", text="回来了"))
    _, answer = await cluster.answered("im.cli.a", 2, PATIENCE_S)
    assert "回来了" in answer["content"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_server_outlives_its_worker(cluster: Cluster, number: signal.Signals) -> None:
    worker = await connected(cluster)
    (server,) = psutil.Process(worker.pid).children()
    worker.signal(number)
    await worker.ended()
    await eventually(lambda: not server.is_running(), PATIENCE_S)

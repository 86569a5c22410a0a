"""Tools of real MCP servers, written with the official library, used as a model uses them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from agent_worker.mcp_tools import connection
from agent_worker.mcp_tools.servers import McpServers
from agent_worker.registry import ToolRegistry
from agent_worker.tool import FunctionTool
from posthouse.errors import ConfigError
from posthouse.settings import McpServerSettings
from tests.support.processes import free_port
from tests.support.wait import eventually
from tests.unit.agent_worker.using import use

PROGRAM = Path(__file__).parents[3] / "support" / "mcp_server.py"
COMMAND = (sys.executable, str(PROGRAM))
READY_S = 30.0


class Desk:
    """A registry with the tools of one server, ``s``."""

    def __init__(self, settings: McpServerSettings) -> None:
        self._registry = ToolRegistry()
        self.servers = McpServers({"s": settings}, self._registry)

    def names(self) -> list[str]:
        return [tool.name for tool in self._registry.narrowed(lambda _: True).list_for("main")]

    def tool(self, name: str) -> FunctionTool | None:
        found = self._registry.narrowed(lambda _: True).get(f"s__{name}")
        assert found is None or isinstance(found, FunctionTool)
        return found

    async def use(self, name: str, **arguments: object) -> str:
        tool = await eventually(lambda: self.tool(name), READY_S, name)
        return await use(tool, arguments)


@asynccontextmanager
async def connected(**settings: object) -> AsyncIterator[Desk]:
    desk = Desk(McpServerSettings.model_validate({"command": COMMAND} | settings))
    desk.servers.start()
    try:
        yield desk
    finally:
        await desk.servers.stop()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with connected() as running:
        yield running


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def started(desk: Desk, file: Path) -> tuple["asyncio.Task[str]", int]:
    """A call that never ends, and the process id of the server."""
    call = asyncio.create_task(desk.use("slow", started=str(file)))

    def written() -> str:
        return file.read_text() if file.exists() else ""

    return call, int(await eventually(written, READY_S, "the call has begun"))


async def test_tools_work_and_their_text_is_marked(desk: Desk) -> None:
    found = await desk.use("echo", text="驿站 ping")
    head, fence, *lines, last = found.split("\n")
    assert head.startswith("From the MCP server s. ")
    assert (fence, lines) == (last, ["驿站 ping"])


async def test_what_the_server_says_of_its_tools(desk: Desk) -> None:
    look = await eventually(lambda: desk.tool("look"), READY_S)
    echo, picture = desk.tool("echo"), desk.tool("picture")
    assert echo is not None
    assert picture is not None
    assert (look.access, look.description) == ("read", "Changes nothing.")
    assert (echo.access, echo.idempotent, picture.idempotent) == ("write", False, True)
    assert echo.input_schema["required"] == ["text"]
    # A bad schema costs its tool alone.
    assert "s__bad" not in desk.names()
    # A name that models cannot write is changed, and means the same.
    (changed,) = (name for name in desk.names() if name.startswith("s_____-"))
    assert "HI" in await desk.use(changed.removeprefix("s__"), text="hi")


async def test_images_and_failures_are_told_of(desk: Desk) -> None:
    assert "before\n\n[image, image/png, 5 bytes]\n\nafter" in await desk.use("picture")
    failed = await desk.use("fail")
    assert failed.startswith("Error: ")
    assert "no luck today" in failed


async def test_only_named_variables_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "geheim")
    async with connected(env={"KEY": "OUR_KEY"}) as desk:
        assert "geheim" in await desk.use("variable", key="KEY")
        assert "not set" in await desk.use("variable", key="OUR_KEY")


async def test_allow_narrows_what_there_is() -> None:
    async with connected(allow=["echo", "unknown"]) as desk:
        assert await eventually(desk.names, READY_S) == ["s__echo"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_come_while_the_server_runs(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MODE", mode)
    async with connected() as desk:
        assert "done" in await desk.use("learn")
        assert "new" in await desk.use("learned")


async def test_what_is_no_message_does_no_harm(desk: Desk) -> None:
    assert "written" in await desk.use("garble")
    assert "still" in await desk.use("echo", text="still")


async def test_killed_in_mid_call(desk: Desk, tmp_path: Path) -> None:
    call, pid = await started(desk, tmp_path / "pid")
    os.kill(pid, signal.SIGKILL)
    assert (await call).startswith("Error: the MCP server s ended during the call.")
    assert "back" in await desk.use("echo", text="back")


async def test_killed_between_calls(desk: Desk, tmp_path: Path) -> None:
    call, pid = await started(desk, tmp_path / "pid")
    call.cancel()
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not alive(pid), READY_S)
    assert "back" in await desk.use("echo", text="back")


async def test_a_call_that_is_never_answered_ends(tmp_path: Path) -> None:
    async with connected(timeout_s=0.5) as desk:
        found = await desk.use("slow", started=str(tmp_path / "pid"))
        assert found == "Error: the MCP server s did not answer within 0.5 s."
        assert "next" in await desk.use("echo", text="next")


async def test_a_frozen_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LIST_TIMEOUT_S", 0.5)
    async with connected(timeout_s=1) as desk:
        call, pid = await started(desk, tmp_path / "pid")
        os.kill(pid, signal.SIGSTOP)
        assert "did not answer within 1 s" in await call
        await eventually(lambda: not alive(pid), READY_S, "the frozen one is killed")
        assert "back" in await desk.use("echo", text="back")


async def test_stop_leaves_no_process(tmp_path: Path) -> None:
    async with connected() as desk:
        call, pid = await started(desk, tmp_path / "pid")
        # Calls run side by side.
        assert "meanwhile" in await desk.use("echo", text="meanwhile")
    assert "ended during the call" in await call
    assert not alive(pid)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/does/not/exist"], "FileNotFoundError: No such file or directory"),
        ([sys.executable, "-c", "pass"], "MCPError"),
        ([sys.executable, "-c", "while True: print('garbage')"], "TimeoutError"),
        (["sleep", "1000"], "TimeoutError"),
    ],
    ids=["missing", "ends", "garbage", "silent"],
)
async def test_what_is_no_server_is_told_and_tried_again(
    command: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(connection, "FIRST_DELAY_S", 0.05)
    before = set(psutil.Process().children())
    with capture_logs() as logs:
        async with connected(command=command) as desk:
            await eventually(lambda: len(logs) >= 2, READY_S)
            assert desk.names() == []
    failed = {"event": "mcp.not_connected", "log_level": "warning", "server": "s"}
    assert logs[:2] == [failed | {"reason": reason}] * 2
    assert set(psutil.Process().children()) <= before


async def test_a_server_that_went_for_good_is_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 0.2)
    program = tmp_path / "server.py"
    program.write_text(PROGRAM.read_text())
    async with connected(command=[sys.executable, str(program)]) as desk:
        await eventually(desk.names, READY_S)
        program.unlink()
        assert "ended during the call" in await desk.use("crash")
        assert "is not there just now" in await desk.use("echo", text="hi")


def test_a_worker_without_servers_does_not_load_the_library() -> None:
    code = "import sys, agent_worker.main; sys.exit('mcp' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_variable_that_is_not_set_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"mcp\.s\.env: the variable NO_SUCH_THING is not set"):
        Desk(McpServerSettings(command=COMMAND, env={"KEY": "NO_SUCH_THING"}))


@asynccontextmanager
async def over_http(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_over_http_also_when_it_comes_late_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_DELAY_S", 0.5)
    monkeypatch.setattr(connection, "PATIENCE_S", READY_S)
    port = free_port()
    async with connected(command=(), url=f"http://127.0.0.1:{port}/mcp", timeout_s=20) as desk:
        async with over_http(port) as process:
            assert "你好" in await desk.use("echo", text="你好")
            call, pid = await started(desk, tmp_path / "pid")
            assert pid == process.pid
            process.kill()
            assert (await call).startswith("Error: ")
        async with over_http(port):
            await eventually(lambda: desk_works(desk), READY_S)


async def desk_works(desk: Desk) -> bool:
    return "back" in await desk.use("echo", text="back")


async def test_headers_carry_the_values_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIKI_AUTHORIZATION", "Bearer geheim")
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        headers = {"Authorization": "WIKI_AUTHORIZATION"}
        async with connected(command=(), url=url, headers_env=headers):
            await eventually(lambda: heard, READY_S)
    assert b"\r\nauthorization: bearer geheim\r\n" in heard[0].lower()

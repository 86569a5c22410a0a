"""The tool ``shell``: without a sandbox it refuses; inside (``system``) nothing gets out."""

import asyncio
import os
import socket
import stat
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from agent_worker.tool import runs_again
from agent_worker.tools.shell import shell_tool
from tests.support.wait import eventually
from tests.unit.agent_worker.tools.workspace import LIMIT, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "workspaces" / "im.cli.local", shell_tool(LIMIT))


def with_program(desk: Desk, program: Path) -> Desk:
    return Desk(desk.root, shell_tool(LIMIT, str(program)))


async def test_without_bubblewrap_it_refuses(desk: Desk, tmp_path: Path) -> None:
    said = await with_program(desk, tmp_path / "bwrap").call("shell", command="touch ran")
    assert said.startswith("Error: the sandbox cannot be made here: bubblewrap (bwrap) is not")
    assert "never run without it" in said
    assert not (desk.root / "ran").exists()


NO_NAMESPACES = "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"


@pytest.mark.parametrize(
    ("script", "mode", "why"),
    [
        (NO_NAMESPACES, 0o755, "bwrap: No permissions to create a new namespace"),
        (NO_NAMESPACES, 0o644, "Permission denied"),
    ],
)
async def test_without_namespaces_it_refuses(
    desk: Desk, tmp_path: Path, script: str, mode: int, why: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(script)
    program.chmod(mode)
    said = await with_program(desk, program).call("shell", command="touch ran")
    assert f"the sandbox cannot be made here: {why}" in said
    assert not (desk.root / "ran").exists()


async def test_bad_calls_are_refused(desk: Desk) -> None:
    assert "holds a NUL" in await desk.call("shell", command="a\0b")
    assert "do not fit" in await desk.call("shell", command="true", timeout_s=0)
    assert "do not fit" in await desk.call("shell", command="true", timeout_s=601)


def test_it_never_runs_twice() -> None:
    assert not runs_again(shell_tool(LIMIT))


@pytest.mark.system
async def test_a_command_runs_in_the_workspace(desk: Desk) -> None:
    desk.put("诗.txt", "处处闻啼鸟\n")
    said = await desk.call("shell", command="pwd; cat 诗.txt; echo 新 > 新.txt; ls")
    assert said == f"{desk.root}\n处处闻啼鸟\n新.txt\n诗.txt\n"
    assert (desk.root / "新.txt").read_text() == "新\n"


@pytest.mark.system
async def test_an_exit_code_is_told(desk: Desk) -> None:
    assert await desk.call("shell", command="exit 3") == "Error: [exit code 3]"
    assert await desk.call("shell", command="echo no >&2; false") == "Error: no\n[exit code 1]"


def exists(path: str) -> bool:
    """Outside of the sandbox."""
    return os.path.exists(path)


@pytest.mark.system
@pytest.mark.parametrize("target", ["/usr/x", "/x", "/dev/shm/x", "/etc/x", "/proc/sys/x"])
async def test_nothing_else_can_be_written(desk: Desk, target: str) -> None:
    assert (await desk.call("shell", command=f"echo x > {target}")).startswith("Error: ")
    assert not exists(target)


@pytest.mark.system
async def test_neighbours_are_not_there(desk: Desk) -> None:
    neighbour = desk.put("../im.cli.other/f", "theirs")
    assert "No such file" in await desk.call("shell", command=f"cat {neighbour}")
    assert await desk.call("shell", command="ls ..") == "im.cli.local\n"
    await desk.call("shell", command=f"mkdir -p {neighbour.parent}; echo x > {neighbour}; rm -r ..")
    assert neighbour.read_text() == "theirs"


@pytest.mark.system
async def test_a_tmp_of_its_own_is_gone_afterwards(desk: Desk) -> None:
    assert await desk.call("shell", command="echo x > /tmp/posthouse-x; ls /tmp | wc -l") == "2\n"
    assert not exists("/tmp/posthouse-x")


@pytest.mark.system
async def test_secrets_and_other_processes_are_not_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hidden-key")
    seen = await desk.call("shell", command="env; cat /proc/*/environ")
    assert "PATH=" in seen
    assert "hidden-key" not in seen
    # bubblewrap's own, the shell, and those of the pipe.
    assert int(await desk.call("shell", command="ls -d /proc/[0-9]* | wc -l")) <= 5
    assert "No such file" in await desk.call("shell", command="cat /etc/passwd")
    assert (await desk.call("shell", command="ls -d /home /root /var")).startswith("Error: ")


@pytest.mark.system
async def test_there_is_no_network(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        called = threading.Event()
        server.settimeout(5)

        def accept() -> None:
            try:
                server.accept()[0].close()
                called.set()
            except TimeoutError:
                pass

        thread = threading.Thread(target=accept)
        thread.start()
        said = await desk.call("shell", command=f"bash -c 'echo > /dev/tcp/127.0.0.1/{port}'")
        thread.join()
    assert said.startswith("Error: ")
    assert not called.is_set()


@pytest.mark.system
async def test_rights_cannot_be_won(desk: Desk) -> None:
    said = await desk.call(
        "shell",
        command="unshare -U true && echo nested; grep CapEff /proc/self/status; "
        "mount -t tmpfs x /mnt && echo mounted; ulimit -c unlimited 2>/dev/null && echo raised",
    )
    assert "CapEff:\t0000000000000000" in said
    for won in ("nested", "mounted", "raised"):
        assert won not in said.splitlines()


def running(command: str) -> int:
    """How many processes of this machine are just this command."""
    lines = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return sum(line == command.split() for line in lines)


@pytest.mark.system
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_the_whole_tree_is_killed(desk: Desk, how: str) -> None:
    mark = f"sleep {300 + time.time() % 1:.6f}"
    command = f"setsid {mark} & (setsid sh -c 'exec {mark}' &) ; nohup {mark} & wait"
    timeout_s = 2 if how == "timeout" else 60
    call = asyncio.create_task(desk.call("shell", command=command, timeout_s=timeout_s))
    await eventually(lambda: running(mark) == 3, 30)
    if how == "cancel":
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    else:
        assert "[killed after 2 s]" in await call
    await eventually(lambda: not running(mark), 30)


WORKER = """
import asyncio, sys
from pathlib import Path
from agent_worker.workspace import processes, sandbox
root = Path(sys.argv[1])
command = [sandbox.PROGRAM, *sandbox.arguments(sys.argv[2], root, 1 << 20, 60)]
asyncio.run(processes.run(command, sandbox.environment(root), 60))
"""


@pytest.mark.system
async def test_a_killed_worker_takes_its_commands_along(desk: Desk) -> None:
    mark = f"sleep {500 + time.time() % 1:.6f}"
    root = desk.put("a", "x").parent
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(root), f"setsid {mark} & wait"
    )
    await eventually(lambda: running(mark), 30)
    worker.kill()
    await worker.wait()
    await eventually(lambda: not running(mark), 30)


@pytest.mark.system
async def test_what_a_command_leaves_behind_ends_with_it(desk: Desk) -> None:
    mark = f"sleep {400 + time.time() % 1:.6f}"
    async with asyncio.timeout(30):
        await desk.call("shell", command=f"setsid {mark} >/dev/null 2>&1 & echo started")
    await eventually(lambda: not running(mark), 30)


@pytest.mark.system
async def test_resources_are_limited(desk: Desk) -> None:
    said = await desk.call("shell", command="head -c 1000000 /dev/zero > big; ls -l big")
    assert str(LIMIT) in said
    limits = "ulimit -v; ulimit -c; ulimit -t; ulimit -u"
    said = await desk.call("shell", command=f"bash -c '{limits}'")
    assert said == f"{2 << 20}\n0\n60\n128\n"


@pytest.mark.system
async def test_too_many_files_end_it(desk: Desk) -> None:
    said = await desk.call(
        "shell", command="n=0; while :; do n=$((n+1)); echo x > f$n; sleep 0.01; done"
    )
    assert "killed: the working directory got larger than 65,536 bytes" in said
    # What is too large may still be made smaller.
    assert await desk.call("shell", command="sleep 3; rm f*; ls") == "(no output)"


@pytest.mark.system
async def test_files_that_a_command_made_are_no_way_out(desk: Desk) -> None:
    await desk.call("shell", command="ln -s /etc/passwd link; cp /bin/sh s; chmod u+s s")
    assert (desk.root / "link").is_symlink()
    # A program with the rights of our user is out of the reach of others.
    assert desk.root.stat().st_mode & 0o077 == 0
    assert stat.S_IMODE(desk.root.stat().st_mode) == 0o700

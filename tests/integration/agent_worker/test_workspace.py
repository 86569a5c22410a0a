"""Files of conversations, by a real worker: kept between turns, and apart from each other."""

import json
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster


def tool(name: str, **arguments: Any) -> str:
    return f"!tool {name} {json.dumps(arguments, ensure_ascii=False)}"


async def test_conversations_have_files_of_their_own(cluster: Cluster, tmp_path: Path) -> None:
    workspaces = tmp_path / "workspaces"
    await cluster.start("agent_worker", POSTHOUSE_WORKSPACE_DIR=str(workspaces))
    await cluster.say("im.cli.mine", tool("write", path="笔记/今天.md", content="买牛奶\n"))
    await cluster.answered("im.cli.mine")
    await cluster.say("im.cli.mine", tool("edit", path="笔记/今天.md", old="牛奶", new="豆浆"))
    await cluster.say("im.cli.mine", tool("grep", pattern="豆.", path="笔记"))
    mine = workspaces / "im.cli.mine"
    answers = await cluster.answered("im.cli.mine", 3)
    assert [answer["tools_used"] for answer in answers] == [["write"], ["edit"], ["grep"]]
    assert "笔记/今天.md:1: 买豆浆" in answers[2]["content"]
    assert (mine / "笔记/今天.md").read_text() == "买豆浆\n"

    for question in (
        tool("glob", pattern="**"),
        tool("read", path="笔记/今天.md"),
        tool("read", path="../im.cli.mine/笔记/今天.md"),
        tool("read", path=str(mine / "笔记/今天.md")),
    ):
        await cluster.say("im.cli.other", question)
    seen = [answer["content"] for answer in await cluster.answered("im.cli.other", 4)]
    assert "No file matches." in seen[0]
    assert "there is no" in seen[1]
    assert "outside of the working directory" in seen[2]
    assert "outside of the working directory" in seen[3]
    assert not any("豆浆" in content for content in seen)
    assert [path.name for path in workspaces.iterdir()] == ["im.cli.mine"]


async def test_files_outlive_their_worker(cluster: Cluster, tmp_path: Path) -> None:
    where = {"POSTHOUSE_WORKSPACE_DIR": str(tmp_path / "workspaces")}
    worker = await cluster.start("agent_worker", **where)
    await cluster.say("im.cli.local", tool("write", path="a", content="kept"))
    await cluster.answered("im.cli.local")
    await worker.stop()
    await cluster.start("agent_worker", **where)
    await cluster.say("im.cli.local", tool("read", path="a"))
    assert "kept" in (await cluster.answered("im.cli.local", 2))[1]["content"]


async def test_a_request_without_a_conversation_has_no_files(
    cluster: Cluster, tmp_path: Path
) -> None:
    workspaces = tmp_path / "workspaces"
    await cluster.start("agent_worker", POSTHOUSE_WORKSPACE_DIR=str(workspaces))
    client = await cluster.nats.connect()
    body = json.dumps({"content": tool("write", path="a", content="x")}).encode()
    reply = json.loads((await client.request("agent.main", body, timeout=30)).data)
    assert "belongs to no conversation" in reply["content"]
    assert not workspaces.exists()

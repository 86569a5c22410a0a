"""Calls of one tool in a workspace, as a model makes them."""

from pathlib import Path
from typing import Any

from agent_worker.engine import RunConfig, run
from agent_worker.registry import ToolRegistry
from agent_worker.tool import Tool
from tests.unit.agent_worker.fakes import ScriptedModel, calls, results, says

LIMIT = 1 << 16


class Desk:
    """Tools over the files in ``root``."""

    def __init__(self, root: Path, *tools: Tool) -> None:
        self.root = root
        self._tools = ToolRegistry(tools)

    async def call(self, tool: str, **arguments: Any) -> str:
        """What the model reads."""
        model = ScriptedModel(calls((tool, arguments)), says("ok"))
        await run(
            RunConfig(
                llm_client=model,
                model="",
                tools=self._tools,
                messages=[{"role": "user", "content": "go"}],
                workspace_root=str(self.root),
            )
        )
        (found,) = results(model.requests[-1])
        return found

    def put(self, path: str, content: str | bytes) -> Path:
        """Make a file, as somebody else would."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

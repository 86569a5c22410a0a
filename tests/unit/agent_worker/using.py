"""A tool used through the engine, as a model does."""

from agent_worker.engine import run
from agent_worker.tool import FunctionTool
from tests.unit.agent_worker.fakes import ScriptedModel, calls, config, results, says


async def use(tool: FunctionTool, arguments: dict[str, object]) -> str:
    """What the model reads after the call."""
    model = ScriptedModel(calls((tool.name, arguments)), says("ok"))
    await run(config(model, tool))
    (found,) = results(model.requests[-1])
    return found

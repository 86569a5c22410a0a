"""Stand-ins for the ports of the engine, and short ways to write a run."""

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

from agent_worker.engine import RunConfig
from agent_worker.llm.client import Answering, ChatRequest, ChatResponse, Message, TextDelta, Usage
from agent_worker.registry import ToolRegistry
from agent_worker.tool import Access, FunctionTool, ToolContext, ToolResult

ANY_OBJECT: dict[str, Any] = {"type": "object"}
Reply = ChatResponse | Exception | Callable[[], Awaitable[ChatResponse]]


class ScriptedModel:
    """Answers with the given replies, one a call; ``requests`` are the messages it was sent."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[list[Message]] = []
        self.chats: list[ChatRequest] = []

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """The next reply."""
        self.requests.append(copy.deepcopy(list(request.messages)))
        self.chats.append(request)
        assert self._replies, "the model was called more often than expected"
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, ChatResponse) else await reply()

    async def chat_stream(self, request: ChatRequest) -> Answering:
        """The next reply, its text a character at a time."""
        response = await self.chat(request)
        for character in response.message["content"]:
            yield TextDelta(character)
        yield response

    async def aclose(self) -> None:
        """Nothing to close."""


def says(text: str, *, finish: str = "stop", tokens: tuple[int, int] = (10, 5)) -> ChatResponse:
    """An answer."""
    return ChatResponse(
        message={"role": "assistant", "content": text},
        usage=Usage(*tokens),
        finish_reason=finish,
        model="fake/model",
    )


def calls(
    *named: tuple[str, dict[str, Any] | str], text: str = "", finish: str = "tool_calls"
) -> ChatResponse:
    """A response with tool calls: (tool, arguments), all with the same wire id."""
    return ChatResponse(
        message={
            "role": "assistant",
            "content": text,
            "tool_calls": [
                {
                    "id": "call_0",
                    "type": "function",
                    "function": {
                        "name": name,
                        "arguments": given if isinstance(given, str) else json.dumps(given),
                    },
                }
                for name, given in named
            ],
        },
        usage=Usage(10, 5),
        finish_reason=finish,
        model="fake/model",
    )


class Recorder:
    """Tools that note what happens to them in ``log``."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.contexts: list[ToolContext] = []

    def tool(
        self,
        name: str,
        access: Access = "read",
        *,
        idempotent: bool = False,
        result: str | ToolResult | Exception = "",
        schema: dict[str, Any] | None = None,
        wait: Callable[[], Awaitable[object]] | None = None,
        timeout_s: float = 10.0,
    ) -> FunctionTool:
        """A tool that logs ``+name`` when it starts and ``-name`` when it has finished."""

        async def act(ctx: ToolContext, input: dict[str, Any]) -> str | ToolResult:
            self.log.append(f"+{name}")
            self.contexts.append(ctx)
            # So that concurrent calls really overlap.
            await (wait() if wait else asyncio.sleep(0))
            if isinstance(result, Exception):
                raise result
            self.log.append(f"-{name}")
            return result or f"{name} done"

        return FunctionTool(
            name=name,
            description=f"does {name}",
            input_schema=schema or ANY_OBJECT,
            function=act,
            access=access,
            idempotent=idempotent,
            timeout_s=timeout_s,
        )


def config(model: ScriptedModel, *tools: FunctionTool, text: str = "hi", **more: Any) -> RunConfig:
    """A run of one user message."""
    given: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "run_id": "run-1",
        **more,
    }
    return RunConfig(llm_client=model, model="", tools=ToolRegistry(tools), **given)


def results(messages: list[Message]) -> list[str]:
    """The contents of the tool messages."""
    return [message["content"] for message in messages if message["role"] == "tool"]

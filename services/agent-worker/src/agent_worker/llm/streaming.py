"""A streamed answer on an open HTTP response: pieces of text first, then the whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import orjson

from agent_worker.llm.deltas import StreamedAnswer
from agent_worker.llm.errors import IncompleteAnswer, ModelUnavailable
from agent_worker.llm.failures import Failure, inner_error, to_error
from agent_worker.llm.sse import ServerEvent, SseParser
from agent_worker.llm.surrogates import loads

DONE = "[DONE]"
# After [DONE] a server ends its response at once, and the connection can be used again; one that
# lingers is not waited for.
LINGER_S = 0.05


class AnswerStream:
    """Reads one response: ``begin``, then ``texts``; then ``payload`` is the whole answer.

    ``begin`` and ``texts`` raise ModelUnavailable when the server falls silent or breaks off,
    IncompleteAnswer when it ends before the answer does, and what an error in the stream means.
    """

    def __init__(
        self, reply: httpx.Response, model: str, first_byte_s: float, idle_s: float
    ) -> None:
        self._reply = reply
        self._model = model
        self._patience_s = first_byte_s
        self._idle_s = idle_s
        self._chunks = reply.aiter_bytes()
        self._answer = StreamedAnswer()
        self._done = False
        self._pieces = self._read()
        self._first = ""

    @property
    def payload(self) -> dict[str, Any]:
        """The answer as a response body that came in one piece."""
        return self._answer.payload()

    async def begin(self) -> None:
        """Wait for the first piece of text, or for the end of an answer without text."""
        async with AsyncExitStack() as failed:
            failed.push_async_callback(self.close)
            self._first = await anext(self._pieces, "")
            failed.pop_all()

    async def texts(self) -> AsyncIterator[str]:
        """The pieces of text as they come."""
        if self._first:
            yield self._first
        async for text in self._pieces:
            yield text

    async def close(self) -> None:
        """Give the connection back, or drop it when the response goes on."""
        if self._done and not self._reply.is_stream_consumed:
            await self._linger()
        await self._reply.aclose()

    async def _read(self) -> AsyncIterator[str]:
        parser = SseParser()
        while not self._done and not self._answer.is_full:
            chunk = await self._chunk()
            for event in parser.close() if chunk is None else parser.feed(chunk):
                if not self._done and (text := self._take(event)):
                    yield text
            if chunk is None:
                break
        if not self._done and not self._answer.is_full and not self._answer.finish_reason:
            raise IncompleteAnswer(f"{self._model}: the stream broke off", model=self._model)

    async def _chunk(self) -> bytes | None:
        try:
            async with asyncio.timeout(self._patience_s):
                chunk = await anext(self._chunks, None)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise ModelUnavailable(f"{self._model}: silent", model=self._model) from error
        except httpx.HTTPError as error:
            reason = f"{self._model}: {type(error).__name__}: {error}"
            raise ModelUnavailable(reason, model=self._model) from error
        self._patience_s = self._idle_s
        return chunk

    def _take(self, event: ServerEvent) -> str:
        if event.data.strip() == DONE:
            self._done = True
            return ""
        try:
            data = loads(event.data)
        except orjson.JSONDecodeError as error:
            raise IncompleteAnswer(f"{self._model}: not JSON in the stream") from error
        if event.event == "error" and not (isinstance(data, dict) and data.get("error")):
            data = {"error": data}
        if failed := inner_error(data):
            raise to_error(Failure(200, *failed), self._model)
        return self._answer.add(data) if isinstance(data, dict) else ""

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(LINGER_S):
                async for _ in self._chunks:
                    pass
        except (TimeoutError, httpx.HTTPError):
            return

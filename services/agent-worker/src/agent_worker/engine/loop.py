"""The one loop that every agent runs: ask the model, run the tools it calls, until it answers."""

import asyncio
import hashlib
import time
from contextlib import aclosing
from typing import Any

from agent_worker.engine.batch import Batch
from agent_worker.engine.cancellation import Stopped, cancelled_from_outside
from agent_worker.engine.compression import Compressor
from agent_worker.engine.config import RunConfig, TranscriptEntry
from agent_worker.engine.execution import Executor
from agent_worker.engine.exits import Exit, Tally, failed, model_failed, outbound
from agent_worker.engine.fitting import fitted
from agent_worker.engine.journal import RESPONSE, NoJournal
from agent_worker.engine.pairs import paired, result
from agent_worker.engine.reporting import Reporter
from agent_worker.engine.results import clean
from agent_worker.engine.thinking import VisibleText, strip_thinking
from agent_worker.llm.client import ChatRequest, ChatResponse, Message, ModelHints
from agent_worker.llm.errors import IncompleteAnswer
from posthouse import events
from posthouse.messages import OutboundMessage

NOT_FINISHED = "Error: this call was interrupted. Whether it had any effect is unknown."
NOT_STARTED = "Error: this call was not run."


class _DeadlinePassed(Exception):
    """A step border after the deadline."""


class _ModelFailed(Exception):
    """The model call failed; carries why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def run(config: RunConfig) -> OutboundMessage:
    """Run an agent to its end: an answer, a question to the user, or a structured error.

    Error codes: ``cancelled``, ``deadline``, ``max_iterations``, ``llm_generate``,
    ``no_answer``. CancelledError passes (shutdown, lost lease), and so does whatever the
    journal raises: then nothing is answered.
    """
    started = time.monotonic()
    state = _Run(config)
    try:
        with config.cancellation:
            async with asyncio.timeout(config.seconds_left()) as limit:
                end = await state.iterate()
    except Stopped as stopped:
        end = failed("cancelled", state.language, reason=stopped.reason)
    except _DeadlinePassed:
        end = failed("deadline", state.language)
    except TimeoutError:
        if not limit.expired():
            raise
        end = failed("deadline", state.language)
    state.finish(end)
    return outbound(config, end, state.tally, time.monotonic() - started)


class _Run:
    """The state of one run."""

    def __init__(self, config: RunConfig) -> None:
        self.language = config.spoken_language()
        self.tally = Tally()
        self._config = config
        self._journal = config.journal or NoJournal()
        self._reporter = Reporter(config)
        self._executor = Executor(config, self._journal, self._reporter, self._border)
        self._messages = paired(config.messages)
        compress = config.auto_compress
        self._compressor = Compressor(compress, config.model) if compress else None
        self._open: Batch | None = None

    async def iterate(self) -> Exit:
        """The loop. Raises Stopped, _DeadlinePassed and what the journal raises."""
        if self._journal.recorded(RESPONSE, 1) is None:
            await self._reporter.event(
                events.AGENT_STARTED,
                {"agent": self._config.agent_id, "run_id": self._config.run_id},
            )
        for iteration in range(1, self._config.max_iterations + 1):
            try:
                message, finish_reason = await self._respond(iteration)
            except _ModelFailed as error:
                return model_failed(error.cause, self.language)
            calls = message.get("tool_calls")
            if not calls:
                return self._answer(message)
            questions = await self._execute(Batch(iteration, calls, finish_reason == "length"))
            if questions:
                return Exit("\n\n".join(dict.fromkeys(questions)), waiting_user=True)
        return failed("max_iterations", self.language)

    def finish(self, end: Exit) -> None:
        """Complete the transcript: open calls get results, and what the user saw is noted.

        So the next prompt keeps its pairs and knows how this turn ended.
        """
        self._close()
        if end.error is not None:
            self._add({"role": "assistant", "content": end.content}, None)

    async def _respond(self, iteration: int) -> tuple[Message, str]:
        """The model's response of this iteration, new or recorded, and its finish reason."""
        recorded = self._journal.recorded(RESPONSE, iteration)
        if recorded is not None:
            step: int | None = recorded.n
            body = recorded.body
        else:
            body = await self._ask(iteration)
            step = await self._journal.record(RESPONSE, iteration, body)
        message: Message = body["message"]
        self._add(message, step)
        self.tally.add_response(body["model"], **body["usage"])
        if recorded is None and message.get("tool_calls"):
            await self._reporter.answered(strip_thinking(message["content"]).strip())
        return message, body["finish_reason"]

    async def _ask(self, iteration: int) -> dict[str, Any]:
        self._border()
        if iteration > 1:
            await self._reporter.thinking()
        config = self._config
        tools = config.tools.schemas_for(config.agent_id)
        await self._fit_window(tools)
        request = ChatRequest(
            messages=self._messages,
            tools=tools,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            model_hints=ModelHints(tier=config.tier),
            model=config.model,
        )
        try:
            response = await self._call_model(request, iteration)
        except asyncio.CancelledError as error:
            if cancelled_from_outside():
                raise
            raise _ModelFailed(RuntimeError("the model call was cancelled")) from error
        except Exception as error:
            raise _ModelFailed(error) from error
        return self._body(response, iteration)

    async def _fit_window(self, tools: list[dict[str, Any]]) -> None:
        if self._compressor is None:
            return
        if fitted := await self._compressor.fit(self._messages, tools):
            self._messages = fitted.messages
            await self._reporter.compressed(fitted.before, fitted.after)

    async def _call_model(self, request: ChatRequest, iteration: int) -> ChatResponse:
        client, on_text = self._config.llm_client, self._config.on_text
        if on_text is None:
            return await client.chat(request)
        visible, response = VisibleText(), None
        async with aclosing(client.chat_stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatResponse):
                    response = piece
                elif text := visible.add(clean(piece.text)):
                    on_text(iteration, text)
        if response is None:
            raise IncompleteAnswer("the model's stream ended without a response")
        if text := visible.rest():
            on_text(iteration, text)
        return response

    def _body(self, response: ChatResponse, iteration: int) -> dict[str, Any]:
        """The response as the journal and the history hold it."""
        given = response.message
        message: Message = {"role": "assistant", "content": clean(given.get("content") or "")}
        if reasoning := given.get("reasoning_content"):
            message["reasoning_content"] = clean(reasoning)
        if calls := given.get("tool_calls"):
            message["tool_calls"] = [
                call | {"id": _call_id(self._config.run_id, iteration, index)}
                for index, call in enumerate(calls)
            ]
        message, cut = fitted(message)
        return {
            "message": message,
            "usage": response.usage._asdict(),
            "finish_reason": "length" if cut else response.finish_reason,
            "model": response.model,
        }

    async def _execute(self, batch: Batch) -> list[str]:
        """Run the calls; returns the questions to the user that they ask."""
        self._open = batch
        await self._executor.run(batch)
        self._close()
        return [done.content for done in batch.outcomes if done and done.waiting_user]

    def _close(self) -> None:
        """Add the results of the open calls, in their order; none stays without one."""
        batch, self._open = self._open, None
        if batch is None:
            return
        for index, (call, outcome) in enumerate(zip(batch.calls, batch.outcomes, strict=True)):
            if index in batch.started:
                self.tally.add_call(call["function"]["name"])
            if outcome is not None:
                self._add(outcome.message, outcome.step)
            else:
                note = NOT_FINISHED if index in batch.started else NOT_STARTED
                self._add(result(call["id"], note), None)

    def _answer(self, message: Message) -> Exit:
        content = strip_thinking(message["content"]).strip()
        return Exit(content) if content else failed("no_answer", self.language)

    def _add(self, message: Message, step: int | None) -> None:
        self._messages.append(message)
        self._config.transcript.append(TranscriptEntry(message, step))

    def _border(self) -> None:
        """Before anything new starts. Raises Stopped and _DeadlinePassed."""
        self._config.cancellation.check()
        left = self._config.seconds_left()
        if left is not None and left <= 0:
            raise _DeadlinePassed


def _call_id(run_id: str, iteration: int, index: int) -> str:
    """Unique in the whole history, whatever the provider numbers, and fit for all of them.

    Some take exactly nine alphanumeric characters, and some number anew in each answer.
    """
    key = f"{run_id}:{iteration}:{index}"
    return hashlib.blake2b(key.encode(), digest_size=5).hexdigest()[:9]

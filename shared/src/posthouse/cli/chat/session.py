"""A chat in a terminal: what is typed goes to the bus, what comes from there is shown."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from posthouse import commands, subjects, texts
from posthouse.cli.chat.history import input_history, state_file
from posthouse.cli.chat.local import Leave, ShowHistory, read_local
from posthouse.cli.chat.terminal import Terminal
from posthouse.cli.chat.transcript import Transcript
from posthouse.cli.conversation import Conversation
from posthouse.errors import BadRequest, PosthouseError, Unavailable
from posthouse.feed import EventFeed

if TYPE_CHECKING:
    from nats.aio.client import Client

    from posthouse.messages import InboundMessage
    from posthouse.texts import Language

HISTORY_AT_START = 10
HISTORY_AT_START_S = 1.0
HISTORY_S = 3.0
WATCH_S = 0.5
RETRY_S = 0.5
# How long to wait on leaving for what was typed last.
LEAVE_S = 3.0


class Session:
    """One person, one conversation, one terminal."""

    def __init__(self, client: "Client", conversation: Conversation, language: "Language") -> None:
        self._client = client
        self._conversation = conversation
        self._transcript = Transcript(language)
        self._terminal = Terminal(
            texts.text("chat_prompt", language),
            input_history(state_file()),
            self._transcript.live,
            self._interrupted,
        )
        self._outgoing: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self._wanted: asyncio.Queue[int] = asyncio.Queue()
        self._unsent: dict[str, InboundMessage] = {}
        self._warned = False

    async def run(self) -> None:
        """Talk until the person leaves. Raises BadRequest, Unavailable."""
        await self._conversation.listen_in()
        self._say("chat_welcome", address=self._conversation.address)
        # Before the first line, so that no answer to it stands in both; and not for long.
        await self._show_history(HISTORY_AT_START, HISTORY_AT_START_S)
        await _until_first(
            self._talk(),
            self._send(),
            self._show_histories(),
            self._hear_answers(),
            self._hear_others(),
            self._follow_events(),
            self._watch_connection(),
        )
        for message in self._unsent.values():
            self._say("chat_unsent", content=message.content)

    async def _talk(self) -> None:
        while True:
            try:
                line = await self._terminal.line()
            except EOFError:
                break
            self._warned = False
            match read_local(line):
                case Leave():
                    break
                case ShowHistory(None):
                    self._say("chat_history_usage")
                case ShowHistory(int(count)):
                    self._wanted.put_nowait(count)
                case _ if line.strip():
                    self._submit(line)
        await self._sent_all()

    def _submit(self, line: str) -> None:
        try:
            message = self._conversation.message(line)
        except BadRequest as error:
            self._refuse(line, error)
            return
        self._transcript.sent(message.id)
        self._unsent[message.id] = message
        self._outgoing.put_nowait(message)
        command = commands.parse(line)
        if command is not None and command.op == "help":
            self._say("chat_help")

    async def _send(self) -> None:
        while True:
            message = await self._outgoing.get()
            await self._deliver(message)
            del self._unsent[message.id]
            self._outgoing.task_done()

    async def _deliver(self, message: "InboundMessage") -> None:
        """Until it is stored or refused; the id makes repeats harmless."""
        while True:
            try:
                await self._conversation.send(message)
                return
            except BadRequest as error:
                self._transcript.withdrawn(message.id)
                self._refuse(message.content, error)
                return
            except Unavailable:
                await asyncio.sleep(RETRY_S)

    def _refuse(self, line: str, error: BadRequest) -> None:
        self._say("chat_refused", reason=error.message)
        self._terminal.restore(line)

    async def _sent_all(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._outgoing.join()
        except TimeoutError:
            return  # ``run`` shows what is left

    async def _hear_answers(self) -> None:
        async for message in self._conversation.answers():
            self._terminal.show(self._transcript.answer(message))

    async def _hear_others(self) -> None:
        async for message in self._conversation.overheard():
            self._terminal.show(self._transcript.heard(message))

    async def _follow_events(self) -> None:
        """Events only decorate: without them the answers come all the same."""
        subject = subjects.events_of(self._conversation.address)
        while True:
            try:
                async with EventFeed(self._client, subject) as feed:
                    async for arrived in feed:
                        self._transcript.event(arrived.event)
                        self._terminal.refresh()
            except PosthouseError:
                await asyncio.sleep(RETRY_S)

    async def _watch_connection(self) -> None:
        away = False
        while True:
            if away == self._client.is_connected:
                away = not away
                self._say("chat_bus_away" if away else "chat_bus_back")
            await asyncio.sleep(WATCH_S)

    async def _show_histories(self) -> None:
        """Those that are asked for; the prompt does not wait for them."""
        while True:
            await self._show_history(await self._wanted.get(), HISTORY_S)

    async def _show_history(self, count: int, timeout_s: float) -> None:
        try:
            history = await self._conversation.history(count, timeout_s)
        except PosthouseError:
            self._say("chat_no_history")
        else:
            self._terminal.show(self._transcript.recalled(history))

    def _interrupted(self) -> bool:
        if self._transcript.running:
            self._submit("/stop")
            self._say("chat_stopping")
            return False
        if self._warned:
            return True
        self._warned = True
        self._say("chat_leave_hint")
        return False

    def _say(self, name: str, **values: object) -> None:
        self._terminal.show([self._transcript.say(name, **values)])


async def _until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, then end the others. Raises what that one raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        from posthouse.service import end  # late: the first prompt does not need its imports

        await end(*tasks)

"""Carries out commands: the record is in Postgres, the hint shortens the wait (R3)."""

import orjson
import structlog

from agent_worker import ingress
from agent_worker.ports import Publisher, StreamMessage, TurnApi
from agent_worker.turns.notices import Notices
from posthouse import commands, subjects, turns
from posthouse.messages import InboundMessage
from posthouse.texts import Language, language_of, text
from posthouse.turns import ControlResult, Letter

log = structlog.get_logger(__name__)

# Commands that Postgres keeps; the others only ask how things are.
STORED = {"stop": "stop", "new": "new"}


class Commands:
    """Handles commands from the command subject and from ordinary messages alike."""

    def __init__(
        self, api: TurnApi, notices: Notices, publisher: Publisher, embedded: bool
    ) -> None:
        self._api = api
        self._notices = notices
        self._publisher = publisher
        self._embedded = embedded

    async def handle_delivery(self, message: StreamMessage) -> None:
        """Handle a message of the command subject; what is no command is a dead letter."""
        letter = ingress.read(message, self._embedded)
        command = ingress.command_of(letter)
        if command is None:
            reason = letter.reason or "not_a_command: write one of " + ", ".join(commands.OPS)
            await self._publisher.dead_letter(message, reason)
            return
        await self.handle(message, letter, command)

    async def handle(
        self, message: StreamMessage, letter: Letter, command: commands.Command
    ) -> None:
        """Store the command, hint its holder, answer in the conversation. May be repeated."""
        body = letter.body
        if body is None:
            return
        result = await self._control(message, body, command)
        log.info("command.handled", op=command.op, running=result.running)
        answer = _answer(command, result, language_of(body.content + result.sample))
        await self._notices.notify(
            body.conversation,
            f"command:{letter.source_id}",
            answer,
            (letter.source_id, *result.stopped),
        )

    async def _control(
        self, message: StreamMessage, body: InboundMessage, command: commands.Command
    ) -> ControlResult:
        result = await self._api.control(
            turns.ControlRequest(
                key=subjects.key(body.conversation),
                address=str(body.conversation),
                position=message.position,
                id=body.id,
                op=STORED.get(command.op, "status"),
                by=str(body.from_),
            )
        )
        if command.op in STORED:
            hint = {"op": command.op, "by": str(body.from_), "id": body.id}
            await self._publisher.hint(subjects.control(body.conversation), orjson.dumps(hint))
        return result


def _answer(command: commands.Command, result: ControlResult, language: Language) -> str:
    match command.op:
        case "stop":
            stopped = result.running or result.stopped
            return text("stopped" if stopped else "nothing_to_stop", language)
        case "new":
            return text("new_conversation", language)
        case "status" if result.running:
            waiting = max(0, result.waiting - 1)
            name = "status_running" if waiting == 0 else "status_running_waiting"
            return text(name, language, waiting=waiting)
        case "status":
            return text("status_idle", language)
        case "help":
            return text("help", language)
        case _:
            return text("nothing_to_approve", language)

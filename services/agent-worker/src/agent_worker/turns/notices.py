"""What becomes of messages that get no turn: dead letters and visible notices (R1, R3, R5)."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from agent_worker import ingress
from agent_worker.ports import Inbox, Publisher, StreamMessage, TurnApi
from agent_worker.turns.outbox import Outbox
from posthouse import subjects, turns
from posthouse.address import Address
from posthouse.errors import BadMessage, BadRequest
from posthouse.messages import MAIN_AGENT, OutboundMessage
from posthouse.texts import language_of, text
from posthouse.turns import (
    AdmitResult,
    Admitted,
    Lease,
    Letter,
    MessageState,
    OpenResult,
    Position,
)

log = structlog.get_logger(__name__)

T = TypeVar("T", OpenResult, AdmitResult)

# Text of the notice, by what became of the message.
NOTICES = {"refused": "too_many_waiting", "stopped": "stopped"}


class Notices:
    """Stores messages and settles those that will never be answered by a turn."""

    def __init__(
        self, api: TurnApi, inbox: Inbox, publisher: Publisher, outbox: Outbox, worker: str
    ) -> None:
        self._api = api
        self._inbox = inbox
        self._publisher = publisher
        self._outbox = outbox
        self._worker = worker

    async def open(self, message: StreamMessage, letter: Letter) -> OpenResult:
        """Store a delivered message; take its conversation if that is free."""
        key = subjects.conversation_key(message.subject)

        def request(some: Letter) -> Awaitable[OpenResult]:
            return self._api.open(turns.OpenRequest(key=key, letter=some, worker=self._worker))

        return await self._store(key, message, letter, request)

    async def admit(self, lease: Lease, message: StreamMessage, letter: Letter) -> AdmitResult:
        """Store a message that the holder found in the stream."""

        def request(some: Letter) -> Awaitable[AdmitResult]:
            return self._api.admit(
                turns.AdmitRequest(key=lease.key, epoch=lease.epoch, letter=some)
            )

        return await self._store(lease.key, message, letter, request)

    async def _store(
        self,
        key: str,
        message: StreamMessage,
        letter: Letter,
        request: Callable[[Letter], Awaitable[T]],
    ) -> T:
        try:
            result = await request(letter)
        except BadMessage as error:  # Postgres cannot store it: keep its place, not its body
            letter = ingress.tombstone(message, ingress.reason_of(error))
            result = await request(letter)
        except BadRequest as error:
            # Its place in the mailbox is taken by another body: stored, but not as this one.
            await self._publisher.dead_letter(message, ingress.reason_of(error))
            raise
        await self._settle(key, message, letter, result.message)
        return result

    async def _settle(
        self, key: str, message: StreamMessage, letter: Letter, state: MessageState
    ) -> None:
        if letter.body is None:
            log.warning("message.dead_lettered", conversation=key, seq=message.position.seq)
            await self._publisher.dead_letter(message, letter.reason or "unknown")
        elif state in NOTICES:
            language = language_of(letter.body.content)
            await self.notify(
                letter.body.conversation,
                f"{state}:{letter.source_id}",
                text(NOTICES[state], language),
                (letter.source_id,),
            )

    async def bury(self, key: str, message: Admitted, attempts: int) -> None:
        """Dead-letter a message whose turn is given up, as it came in if that is still there."""
        subject = f"{subjects.INBOUND_PREFIX}.{key}"
        before = Position(generation=message.generation, seq=message.seq - 1)
        found = await self._inbox.next_message(subject, before)
        if found is None or found.position != message.position:
            body = message.body.to_wire()
            found = StreamMessage(subject, message.position, body, message.body.time)
        await self._publisher.dead_letter(
            found, "gave_up: its turn could not be finished", attempts
        )

    async def notify(
        self, conversation: Address, idempotency_key: str, content: str, answers: tuple[str, ...]
    ) -> None:
        """Send a notice beside any running turn; the same key sends it once."""
        notice = OutboundMessage(
            id="",
            from_=MAIN_AGENT,
            to=conversation,
            conversation=conversation,
            kind="notice",
            content=content,
            in_reply_to=answers,
        )
        sent = await self._api.notify(
            turns.NotifyRequest(
                key=subjects.key(conversation),
                address=str(conversation),
                idempotency_key=idempotency_key,
                message=notice,
            )
        )
        await self._outbox.publish([sent.outgoing])

"""Publishes stored outbound messages, in order, and remembers what to report (R12)."""

import structlog

from agent_worker.ports import Publisher
from posthouse import subjects
from posthouse.bus import GENERATION, MSG_ID
from posthouse.errors import PermanentError, TransientError
from posthouse.turns import Outgoing, Published

log = structlog.get_logger(__name__)


class Outbox:
    """What is published here is reported with the next heartbeat; what is not, is relayed."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._reports: dict[tuple[str, int, int], Published] = {}

    async def publish(self, outgoing: list[Outgoing]) -> None:
        """Publish in order. Stops at the first that JetStream does not take now: the message
        stays unpublished in Postgres, and the relay of some worker brings it later.
        """
        for message in outgoing:
            place = (message.key, message.generation, message.seq)
            if place in self._reports:
                continue
            failed = None
            try:
                await self._publish(message)
            except TransientError as error:
                log.warning("outbound.delayed", id=message.id, reason=error.message)
                return
            except PermanentError as error:
                log.error("outbound.failed", id=message.id, reason=error.message)
                failed = error.message
            self._reports[place] = Published(
                key=message.key, generation=message.generation, seq=message.seq, failed=failed
            )

    async def _publish(self, message: Outgoing) -> None:
        headers = {MSG_ID: message.id, GENERATION: str(message.generation)}
        subject = f"{subjects.OUTBOUND_PREFIX}.{message.key}"
        await self._publisher.publish(subject, message.body.to_wire(), headers)

    def reports(self) -> list[Published]:
        """What has been published and not yet been reported."""
        return list(self._reports.values())

    def reported(self, done: list[Published]) -> None:
        """These reports arrived."""
        for report in done:
            self._reports.pop((report.key, report.generation, report.seq), None)

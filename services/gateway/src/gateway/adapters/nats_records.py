"""The KV bucket ``delivery`` as the place of the delivery records."""

import structlog
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue
from pydantic import ValidationError

from gateway.adapters.nats_errors import unavailable
from gateway.delivery.record import Entry
from gateway.ports import Conflict, Stored
from posthouse import streams

log = structlog.get_logger(__name__)

WHAT = "the bucket delivery"


class NatsRecords:
    """Reads and replaces entries by revision."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._bucket: KeyValue | None = None

    async def read(self, key: str) -> Stored:
        """The record of a conversation. Raises Unavailable."""
        with unavailable(WHAT):
            try:
                found = await (await self._open()).get(key)
            except KeyNotFoundError:
                return Stored(None, 0)
        revision = found.revision or 0
        try:
            return Stored(Entry.model_validate_json(found.value or b""), revision)
        except ValidationError:
            # Somebody else wrote it; to go on without a record is what is done for a lost one.
            log.error("delivery.record_unreadable", key=key, revision=revision)
            return Stored(None, revision)

    async def write(self, key: str, entry: Entry, revision: int) -> int:
        """Replace the record of that revision (0 = there is none). Raises Conflict, Unavailable."""
        with unavailable(WHAT):
            bucket = await self._open()
            try:
                if revision:
                    return await bucket.update(key, entry.to_value(), last=revision)
                return await bucket.create(key, entry.to_value())
            except KeyWrongLastSequenceError as error:
                raise Conflict(key=key) from error

    async def _open(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await self._js.key_value(streams.DELIVERY_BUCKET)
        return self._bucket

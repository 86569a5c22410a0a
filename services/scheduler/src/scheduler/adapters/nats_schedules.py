"""The KV bucket ``schedules`` as the place of the records."""

import asyncio
from typing import Any

import nats.errors
import orjson
import structlog
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, NoKeysError
from nats.js.kv import KeyValue

from posthouse import streams
from posthouse.errors import Unavailable
from scheduler.settings import LIST_TIMEOUT_S

log = structlog.get_logger(__name__)


class NatsSchedules:
    """Reads the records, one JSON object a key."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js

    async def records(self) -> list[dict[str, Any]]:
        """Every record, in the order of their keys. Raises Unavailable."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                bucket = await self._js.key_value(streams.SCHEDULES_BUCKET)
                found = [await _read(bucket, key) for key in sorted(await _keys(bucket))]
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise Unavailable(f"the bucket schedules: {type(error).__name__}") from error
        return [record for record in found if record is not None]


async def _keys(bucket: KeyValue) -> list[str]:
    try:
        return await bucket.keys()
    except NoKeysError:
        return []


async def _read(bucket: KeyValue, key: str) -> dict[str, Any] | None:
    """A record, None when it is gone or cannot be read."""
    try:
        record = orjson.loads((await bucket.get(key)).value or b"")
    except KeyNotFoundError:
        return None
    except orjson.JSONDecodeError:
        log.error("schedule.unreadable", key=key)
        return None
    return record if isinstance(record, dict) else None

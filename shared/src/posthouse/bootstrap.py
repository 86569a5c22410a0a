"""Creates streams, consumers and buckets, and compares what is there (R23).

``bootstrap`` is idempotent and only adds: a missing asset is created, a tunable that differs is
updated, an incompatible difference raises Drift. Services call ``check``, which changes nothing
except that a missing EVENTS stream (memory storage, gone after a restart) is created.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import nats.errors
import structlog
from nats.js import JetStreamContext
from nats.js import errors as js_errors
from nats.js.api import ConsumerConfig, StreamConfig, StreamInfo

from posthouse import streams
from posthouse.errors import Drift, Unavailable

log = structlog.get_logger(__name__)

STREAM_MUST = ("subjects", "retention", "storage", "discard", "discard_new_per_subject")
STREAM_TUNABLE = ("max_age", "max_bytes", "max_msgs_per_subject", "duplicate_window")
CONSUMER_MUST = ("filter_subject", "ack_policy")
CONSUMER_TUNABLE = ("ack_wait", "max_deliver", "max_ack_pending")


@dataclass(frozen=True)
class Difference:
    """One field of one asset that is not as declared."""

    asset: str
    field: str
    declared: Any
    found: Any
    incompatible: bool

    def __str__(self) -> str:
        return f"{self.asset}: {self.field} is {self.found!r}, declared {self.declared!r}"


async def bootstrap(js: JetStreamContext, domains: Iterable[str]) -> list[Difference]:
    """Bring the server into the declared shape; returns what was tuned.

    ``domains``: the bots that deliver outbound messages. Raises Drift when an asset differs in a
    field that cannot be changed safely, and Unavailable when the server does not answer.
    """
    try:
        tuned = [d for config in streams.streams() for d in await _ensure_stream(js, config)]
        for stream, consumer in streams.consumers(domains):
            tuned += await _ensure_consumer(js, stream, consumer)
        for bucket in streams.buckets():
            try:
                await js.key_value(bucket.bucket)
            except js_errors.NotFoundError:
                await js.create_key_value(bucket)
    except (nats.errors.TimeoutError, js_errors.ServiceUnavailableError, OSError) as error:
        raise Unavailable("JetStream does not answer") from error
    return tuned


async def check(js: JetStreamContext, domains: Iterable[str] = ()) -> list[Difference]:
    """Compare only; returns tunable differences as warnings. Raises Drift, Unavailable."""
    found: list[Difference] = []
    try:
        for config in streams.streams():
            found += await _check_stream(js, config)
        for stream, consumer in streams.consumers(domains):
            found += await _check_consumer(js, stream, consumer)
    except (nats.errors.TimeoutError, js_errors.ServiceUnavailableError, OSError) as error:
        raise Unavailable("JetStream does not answer") from error
    _refuse_incompatible(found)
    for difference in found:
        log.warning("streams.tunable_drift", asset=difference.asset, field=difference.field)
    return found


async def create_events(js: JetStreamContext) -> None:
    """Create EVENTS, which a restart takes; whoever finds it missing does so.

    Does nothing when it is there. Raises the errors of nats-py.
    """
    await js.add_stream(next(c for c in streams.streams() if c.name == streams.EVENTS))


async def generation(js: JetStreamContext, stream: str) -> int:
    """The generation of a stream on the server."""
    return generation_of(await js.stream_info(stream))


def generation_of(info: StreamInfo) -> int:
    """The stream's creation time in ms: a recreated stream restarts its sequences (R4)."""
    if info.created is None:
        raise Drift(f"the server does not tell when stream {info.config.name} was created")
    return round(info.created.timestamp() * 1000)


async def _ensure_stream(js: JetStreamContext, config: StreamConfig) -> list[Difference]:
    name = str(config.name)
    try:
        info = await js.stream_info(name)
    except js_errors.NotFoundError:
        await js.add_stream(config)
        return []
    different = _compare_stream(config, info.config)
    _refuse_incompatible(different)
    if different:
        await js.update_stream(config)
    return different


async def _ensure_consumer(
    js: JetStreamContext, stream: str, config: ConsumerConfig
) -> list[Difference]:
    try:
        info = await js.consumer_info(stream, str(config.durable_name))
    except js_errors.NotFoundError:
        await js.add_consumer(stream, config)
        return []
    different = _compare_consumer(stream, config, info.config)
    _refuse_incompatible(different)
    if different:
        await js.add_consumer(stream, config)
    return different


async def _check_stream(js: JetStreamContext, config: StreamConfig) -> list[Difference]:
    name = str(config.name)
    try:
        return _compare_stream(config, (await js.stream_info(name)).config)
    except js_errors.NotFoundError as error:
        if name != streams.EVENTS:
            raise Drift(f"stream {name} is missing; run `posthouse bootstrap`") from error
        await create_events(js)
        return []


async def _check_consumer(
    js: JetStreamContext, stream: str, config: ConsumerConfig
) -> list[Difference]:
    name = str(config.durable_name)
    try:
        info = await js.consumer_info(stream, name)
    except js_errors.NotFoundError as error:
        raise Drift(f"consumer {name} is missing; run `posthouse bootstrap`") from error
    return _compare_consumer(stream, config, info.config)


def _compare_stream(want: StreamConfig, have: StreamConfig) -> list[Difference]:
    name = str(want.name)
    found = _differences(f"stream {name}", want, have, STREAM_MUST, incompatible=True)
    found += _differences(f"stream {name}", want, have, STREAM_TUNABLE, incompatible=False)
    return found + _older_schema(f"stream {name}", have.metadata)


def _compare_consumer(stream: str, want: ConsumerConfig, have: ConsumerConfig) -> list[Difference]:
    name = f"consumer {want.durable_name} on {stream}"
    found = _differences(name, want, have, CONSUMER_MUST, incompatible=True)
    return found + _differences(name, want, have, CONSUMER_TUNABLE, incompatible=False)


def _differences(
    asset: str, want: Any, have: Any, fields: Iterable[str], incompatible: bool
) -> list[Difference]:
    found = []
    for field in fields:
        declared, actual = getattr(want, field), getattr(have, field)
        # Not declared: the server's default counts.
        if declared not in (None, 0, -1) and declared != actual:
            found.append(Difference(asset, field, declared, actual, incompatible))
    return found


def _older_schema(asset: str, metadata: dict[str, str] | None) -> list[Difference]:
    have = int((metadata or {}).get(streams.SCHEMA_KEY, 0))
    if have >= streams.SCHEMA:
        return []
    return [Difference(asset, streams.SCHEMA_KEY, streams.SCHEMA, have, have > 0)]


def _refuse_incompatible(found: list[Difference]) -> None:
    broken = [difference for difference in found if difference.incompatible]
    if broken:
        raise Drift("; ".join(map(str, broken)), assets=[d.asset for d in broken])

"""Creates streams, consumers and buckets, and compares what is there (R23).

``bootstrap`` is idempotent and only adds: a missing asset is created, a tunable that differs is
updated, an incompatible difference raises Drift. Services call ``check``, which changes nothing
except that a missing EVENTS stream (memory storage, gone after a restart) is created.
``differences`` changes nothing at all.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import nats.errors
import structlog
from nats.js import JetStreamContext
from nats.js import errors as js_errors
from nats.js.api import ConsumerConfig, KeyValueConfig, StreamConfig, StreamInfo

from posthouse import streams
from posthouse.errors import Drift, Unavailable

log = structlog.get_logger(__name__)

STREAM_MUST = ("subjects", "retention", "storage", "discard", "discard_new_per_subject")
STREAM_TUNABLE = ("max_age", "max_bytes", "max_msgs_per_subject", "duplicate_window")
CONSUMER_MUST = ("filter_subject", "ack_policy")
CONSUMER_TUNABLE = ("ack_wait", "max_deliver", "max_ack_pending")


@dataclass(frozen=True)
class Difference:
    """One field of one asset that is not as declared; without ``field`` the asset is missing."""

    asset: str
    field: str = ""
    declared: Any = None
    found: Any = None
    incompatible: bool = False

    @property
    def missing(self) -> bool:
        """Whether the whole asset is missing."""
        return not self.field

    @property
    def change(self) -> str:
        """The field with both values."""
        return f"{self.field} is {_shown(self.found)}, declared {_shown(self.declared)}"

    def __str__(self) -> str:
        return f"{self.asset} is missing" if self.missing else f"{self.asset}: {self.change}"


class _Asset(Protocol):
    """Something declared in ``streams``; methods raise the errors of nats-py."""

    @property
    def name(self) -> str: ...

    @property
    def lies_in(self) -> str:
        """The asset without which this one cannot be."""
        ...

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        """What is not as declared. Raises NotFoundError when it is missing."""
        ...

    async def create(self, js: JetStreamContext) -> None: ...

    async def tune(self, js: JetStreamContext) -> None: ...


@dataclass(frozen=True)
class _Stream:
    config: StreamConfig
    lies_in: str = ""

    @property
    def name(self) -> str:
        return f"stream {self.config.name}"

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        have = (await js.stream_info(str(self.config.name))).config
        found = _differences(self.name, self.config, have, STREAM_MUST, incompatible=True)
        found += _differences(self.name, self.config, have, STREAM_TUNABLE, incompatible=False)
        return found + _older_schema(self.name, have.metadata)

    async def create(self, js: JetStreamContext) -> None:
        await js.add_stream(self.config)

    async def tune(self, js: JetStreamContext) -> None:
        await js.update_stream(self.config)


@dataclass(frozen=True)
class _Consumer:
    stream: str
    config: ConsumerConfig

    @property
    def name(self) -> str:
        return f"consumer {self.config.durable_name} on {self.stream}"

    @property
    def lies_in(self) -> str:
        return f"stream {self.stream}"

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        have = (await js.consumer_info(self.stream, str(self.config.durable_name))).config
        found = _differences(self.name, self.config, have, CONSUMER_MUST, incompatible=True)
        return found + _differences(
            self.name, self.config, have, CONSUMER_TUNABLE, incompatible=False
        )

    async def create(self, js: JetStreamContext) -> None:
        await js.add_consumer(self.stream, self.config)

    tune = create


@dataclass(frozen=True)
class _Bucket:
    config: KeyValueConfig
    lies_in: str = ""

    @property
    def name(self) -> str:
        return f"bucket {self.config.bucket}"

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        await js.key_value(self.config.bucket)
        return []

    async def create(self, js: JetStreamContext) -> None:
        await js.create_key_value(self.config)

    async def tune(self, js: JetStreamContext) -> None:
        """Nothing of a bucket is compared."""


async def differences(js: JetStreamContext, domains: Iterable[str] = ()) -> list[Difference]:
    """Everything that is not as declared; changes nothing.

    ``domains``: the bots that deliver outbound messages. What lies in a missing stream is not
    named beside it. Raises Unavailable when the server does not answer.
    """
    with _clear_errors():
        found = await _compare(js, domains)
    missing = {asset.name for asset, different in found if any(d.missing for d in different)}
    return [d for asset, different in found if asset.lies_in not in missing for d in different]


async def bootstrap(js: JetStreamContext, domains: Iterable[str]) -> list[Difference]:
    """Bring the server into the declared shape; returns what was tuned.

    Raises Drift, before anything is changed, when an asset differs in a field that cannot be
    changed safely; Drift when the server refuses an asset; Unavailable when it does not answer.
    """
    with _clear_errors():
        found = await _compare(js, domains)
        _refuse([d for _, different in found for d in different if d.incompatible])
        for asset, different in found:
            if any(d.missing for d in different):
                await asset.create(js)
            elif different:
                await asset.tune(js)
    return [d for _, different in found for d in different if not d.missing]


async def check(js: JetStreamContext, domains: Iterable[str] = ()) -> list[Difference]:
    """Compare only; returns tunable differences as warnings. Raises Drift, Unavailable."""
    found = await differences(js, domains)
    events = Difference(f"stream {streams.EVENTS}")
    if events in found:
        found.remove(events)
        with _clear_errors():
            await create_events(js)
    _refuse([d for d in found if d.incompatible])
    _refuse([d for d in found if d.missing], "; run `posthouse bootstrap`")
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


def _declared(domains: Iterable[str]) -> list[_Asset]:
    """All assets, in the order in which they are created."""
    return [
        *(_Stream(config) for config in streams.streams()),
        *(_Consumer(stream, config) for stream, config in streams.consumers(domains)),
        *(_Bucket(config) for config in streams.buckets()),
    ]


async def _compare(
    js: JetStreamContext, domains: Iterable[str]
) -> list[tuple[_Asset, list[Difference]]]:
    found = []
    for asset in _declared(domains):
        try:
            found.append((asset, await asset.compare(js)))
        except js_errors.NotFoundError:
            found.append((asset, [Difference(asset.name)]))
    return found


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


def _shown(value: Any) -> str:
    return repr(value.value if isinstance(value, Enum) else value)


def _older_schema(asset: str, metadata: dict[str, str] | None) -> list[Difference]:
    text = str((metadata or {}).get(streams.SCHEMA_KEY, 0))
    # What is no number was not written by us: as if nothing stood there.
    have = int(text) if text.isdecimal() else 0
    if have >= streams.SCHEMA:
        return []
    return [Difference(asset, streams.SCHEMA_KEY, streams.SCHEMA, have, have > 0)]


def _refuse(broken: list[Difference], remedy: str = "") -> None:
    if broken:
        raise Drift("; ".join(map(str, broken)) + remedy, assets=[d.asset for d in broken])


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except (js_errors.ServiceUnavailableError, js_errors.ServerError) as error:
        raise Unavailable(f"JetStream does not answer: {error.description}") from error
    except js_errors.APIError as error:
        raise Drift(f"JetStream refuses it: {error.description}") from error
    except (nats.errors.Error, OSError) as error:
        raise Unavailable("JetStream does not answer") from error

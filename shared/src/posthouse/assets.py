"""What must be on the bus: streams, consumers and buckets, each compared, created and tuned."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, KeyValueConfig, StreamConfig

from posthouse import streams

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


class Asset(Protocol):
    """Something declared in ``streams``; methods raise the errors of nats-py."""

    @property
    def name(self) -> str:
        """Its kind and name, as ``stream INBOUND``."""
        ...

    @property
    def lies_in(self) -> str:
        """The asset without which this one cannot be."""
        ...

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        """What is not as declared. Raises NotFoundError when it is missing."""
        ...

    async def create(self, js: JetStreamContext) -> None:
        """Create it as declared."""
        ...

    async def tune(self, js: JetStreamContext) -> None:
        """Set its tunables as declared."""
        ...


@dataclass(frozen=True)
class Stream:
    """A stream."""

    config: StreamConfig
    lies_in: str = ""

    @property
    def name(self) -> str:
        """See Asset."""
        return f"stream {self.config.name}"

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        """See Asset."""
        have = (await js.stream_info(str(self.config.name))).config
        found = _differences(self.name, self.config, have, STREAM_MUST, incompatible=True)
        found += _differences(self.name, self.config, have, STREAM_TUNABLE, incompatible=False)
        return found + _older_schema(self.name, have.metadata)

    async def create(self, js: JetStreamContext) -> None:
        """See Asset."""
        await js.add_stream(self.config)

    async def tune(self, js: JetStreamContext) -> None:
        """See Asset."""
        await js.update_stream(self.config)


@dataclass(frozen=True)
class Consumer:
    """A durable consumer of a stream."""

    stream: str
    config: ConsumerConfig

    @property
    def name(self) -> str:
        """See Asset."""
        return f"consumer {self.config.durable_name} on {self.stream}"

    @property
    def lies_in(self) -> str:
        """See Asset."""
        return f"stream {self.stream}"

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        """See Asset."""
        have = (await js.consumer_info(self.stream, str(self.config.durable_name))).config
        found = _differences(self.name, self.config, have, CONSUMER_MUST, incompatible=True)
        return found + _differences(
            self.name, self.config, have, CONSUMER_TUNABLE, incompatible=False
        )

    async def create(self, js: JetStreamContext) -> None:
        """See Asset."""
        await js.add_consumer(self.stream, self.config)

    tune = create


@dataclass(frozen=True)
class Bucket:
    """A key-value bucket; whether it is there is all that is compared."""

    config: KeyValueConfig
    lies_in: str = ""

    @property
    def name(self) -> str:
        """See Asset."""
        return f"bucket {self.config.bucket}"

    async def compare(self, js: JetStreamContext) -> list[Difference]:
        """See Asset."""
        await js.key_value(self.config.bucket)
        return []

    async def create(self, js: JetStreamContext) -> None:
        """See Asset."""
        await js.create_key_value(self.config)

    async def tune(self, js: JetStreamContext) -> None:
        """There is nothing to tune."""


def declared(domains: Iterable[str]) -> list[Asset]:
    """All assets, in the order in which they are created."""
    return [
        *(Stream(config) for config in streams.streams()),
        *(Consumer(stream, config) for stream, config in streams.consumers(domains)),
        *(Bucket(config) for config in streams.buckets()),
    ]


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

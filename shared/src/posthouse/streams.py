"""Streams, consumers and buckets: declared here and nowhere else.

``bootstrap.py`` creates them and compares them (R23); docs/architecture.md lists them. Limits
per subject are for disasters only (R1). Acks are explicit and deliveries have no limit: what is
not finished comes again.
"""

from collections.abc import Iterable

from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    KeyValueConfig,
    RetentionPolicy,
    StorageType,
    StoreCompression,
    StreamConfig,
)

from posthouse import subjects

SCHEMA_KEY = "posthouse.schema"
SCHEMA = 1
"""Version of these declarations; raised when a service needs a stream in a new shape."""

INBOUND = "INBOUND"
OUTBOUND = "OUTBOUND"
EVENTS = "EVENTS"
CRON = "CRON"
DLQ = "DLQ"

TURNS = "turns"
COMMANDS = "commands"
FIRES = "fires"

DELIVERY_BUCKET = "delivery"
SCHEDULES_BUCKET = "schedules"

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MEBIBYTE = 1024 * 1024
METADATA = {SCHEMA_KEY: str(SCHEMA)}


def streams() -> list[StreamConfig]:
    """Every stream, in the order in which bootstrap creates them."""
    return [
        StreamConfig(
            name=INBOUND,
            description="messages and commands on their way to agents",
            subjects=[subjects.INBOUND_ALL, subjects.COMMAND_ALL],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            compression=StoreCompression.S2,
            discard=DiscardPolicy.NEW,
            discard_new_per_subject=True,
            max_msgs_per_subject=10_000,
            max_age=7 * DAY_S,
            duplicate_window=15 * 60.0,
            metadata=METADATA,
        ),
        StreamConfig(
            name=OUTBOUND,
            description="answers on their way to the channels",
            subjects=[subjects.OUTBOUND_ALL],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            compression=StoreCompression.S2,
            discard=DiscardPolicy.OLD,
            max_age=7 * DAY_S,
            duplicate_window=15 * 60.0,
            metadata=METADATA,
        ),
        StreamConfig(
            name=EVENTS,
            description="live feed of workflows with a replay buffer; Postgres keeps the record",
            subjects=[subjects.EVENTS_ALL],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.MEMORY,
            discard=DiscardPolicy.OLD,
            max_age=2 * DAY_S,
            max_bytes=128 * MEBIBYTE,
            metadata=METADATA,
        ),
        StreamConfig(
            name=CRON,
            description="message schedules and their fires",
            subjects=[subjects.CRON_ALL],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            discard=DiscardPolicy.OLD,
            max_age=7 * DAY_S,
            allow_msg_ttl=True,
            allow_msg_schedules=True,
            metadata=METADATA,
        ),
        StreamConfig(
            name=DLQ,
            description="what could not be handled, with the reason in its headers",
            subjects=[subjects.DLQ_ALL],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            discard=DiscardPolicy.OLD,
            max_age=30 * DAY_S,
            max_bytes=1024 * MEBIBYTE,
            duplicate_window=HOUR_S,
            metadata=METADATA,
        ),
    ]


def consumers(domains: Iterable[str]) -> list[tuple[str, ConsumerConfig]]:
    """Every durable as (stream, config); ``domains`` are the bots that deliver (R18)."""
    return [
        (INBOUND, _durable(TURNS, subjects.INBOUND_ALL, ack_wait=10, max_ack_pending=4096)),
        (INBOUND, _durable(COMMANDS, subjects.COMMAND_ALL, ack_wait=10, max_ack_pending=1024)),
        (CRON, _durable(FIRES, subjects.CRON_FIRES, ack_wait=10, max_ack_pending=1024)),
        *((OUTBOUND, deliver(domain)) for domain in domains),
    ]


def deliver(domain: str) -> ConsumerConfig:
    """The durable that hands one bot's outbound messages to the gateway."""
    return _durable(
        subjects.deliver_durable(domain),
        subjects.outbound_domain(domain),
        ack_wait=30,
        max_ack_pending=1024,
    )


def _durable(
    name: str, filter_subject: str, ack_wait: float, max_ack_pending: int
) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=name,
        filter_subject=filter_subject,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait,
        max_deliver=-1,
        max_ack_pending=max_ack_pending,
        metadata=METADATA,
    )


def buckets() -> list[KeyValueConfig]:
    """Every key-value bucket. Delivery entries outlive OUTBOUND (R17)."""
    return [
        KeyValueConfig(bucket=DELIVERY_BUCKET, history=1, ttl=14 * DAY_S),
        KeyValueConfig(bucket=SCHEDULES_BUCKET, history=5),
    ]

"""Numbers of the gateway; times in seconds."""

from dataclasses import dataclass

MAX_CONVERSATION_ID_CHARACTERS = 512
MAX_IDEMPOTENCY_KEY_CHARACTERS = 200

# Of a whole request body, however slowly it comes.
BODY_TIMEOUT_S = 30.0
# Below the 3 s in which most platforms want their answer.
PUBLISH_TIMEOUT_S = 2.5
JETSTREAM_TIMEOUT_S = 2.0
MEMORY_TIMEOUT_S = 3.0

# Longest time that a callback may take to answer.
CALLBACK_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """How one bot's outbound messages are delivered (R17)."""

    slots: int = 64
    """Messages held at once, sent or waiting for their turn."""
    per_conversation: int = 8
    """Messages of one conversation held at once; so a hanging one cannot take all slots."""
    lease_s: float = 10.0
    """How long a silent sender keeps a conversation."""
    lease_margin_s: float = 1.0
    """A sender that cannot renew gives up this much before the lease ends."""
    gap_s: float = 5.0
    """Age of a gap at which memory is asked for the missing message."""
    unrecorded_gap_s: float = 10.0
    """The same where nothing is recorded; longer than a dead worker's outbox takes to be sent."""
    send_s: float = 60.0
    """Longest time for one part, whatever the channel does."""
    first_look_s: float = 0.05
    busy_s: float = 2.5
    """Pauses before looking again at a busy conversation: the first, doubled each time, and the
    longest, well below ``gap_s``. Whoever serves it goes on with what is handed back meanwhile."""
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    give_up_s: float = 24 * 3600.0
    """Age at which a message that still fails in passing is dead-lettered."""
    max_crashes: int = 5
    """Attempts for a message on which the channel raises an error it should not raise."""
    fetch_s: float = 1.0
    in_progress_s: float = 4.0
    """How often the bus hears that a message is in work; well below the durable's ack_wait."""
    grace_s: float = 18.0
    """Time that sends under way have to end when the process stops."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How events are streamed to readers over HTTP."""

    max_streams: int = 1000
    """Streams that are open at once in one process."""
    ping_s: float = 15.0
    """How often a reader hears something; proxies close what is silent for longer, often 60 s."""
    retry_ms: int = 2000
    """How long a reader waits before it reconnects."""

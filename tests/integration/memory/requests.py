"""Requests as a worker makes them, short to write: message ``n`` stands at position ``n``."""

from posthouse.address import Address
from posthouse.messages import InboundMessage, OutboundMessage
from posthouse.turns import (
    CommitRequest,
    HistoryEntry,
    Letter,
    Manifest,
    Position,
    Published,
    Step,
    TurnState,
)

CONVERSATION = Address.im("cli", "local")
ADDRESS = str(CONVERSATION)
KEY = "im.cli.local"
GENERATION = 1000
DEADLINE_MS = 4_000_000_000_000


def place(seq: int, generation: int = GENERATION) -> Position:
    """A position in the first stream generation."""
    return Position(generation=generation, seq=seq)


def letter(seq: int, source: str = "", content: str = "", generation: int = GENERATION) -> Letter:
    """Message ``seq``, with an id of its own unless ``source`` says another."""
    source = source or f"s{seq}"
    body = InboundMessage(
        id=source,
        from_=CONVERSATION,
        conversation=CONVERSATION,
        content=content or f"message {seq}",
    )
    return Letter(position=place(seq, generation), source_id=source, address=ADDRESS, body=body)


def tombstone(seq: int) -> Letter:
    """A message that could not be read (R5)."""
    return Letter(position=place(seq), source_id=f"s{seq}", reason="nul")


def manifest(*seqs: int, run_id: str = "run", deadline_ms: int = DEADLINE_MS) -> Manifest:
    """The start of a turn of these messages."""
    positions = [place(n) for n in seqs]
    return Manifest(run_id=run_id, positions=positions, deadline_ms=deadline_ms)


def step(n: int, text: str = "hm", kind: str = "model") -> Step:
    """A recorded model response."""
    return Step(n=n, kind=kind, body={"message": {"role": "assistant", "content": text}})


def outbound(text: str = "answer") -> OutboundMessage:
    """A message to the conversation."""
    return OutboundMessage(
        id="", from_=Address.agent("main"), to=CONVERSATION, conversation=CONVERSATION, content=text
    )


def said(text: str) -> HistoryEntry:
    """A history message, written out."""
    return HistoryEntry(message={"role": "user", "content": text})


def commit(
    epoch: int,
    *seqs: int,
    key: str = KEY,
    state: TurnState = "done",
    answers: int = 1,
    history: list[HistoryEntry] | None = None,
    checked: int | None = None,
) -> CommitRequest:
    """The end of a turn of these messages; by default one answer, and each message in history."""
    return CommitRequest(
        key=key,
        epoch=epoch,
        turn=place(seqs[0]),
        positions=[place(n) for n in seqs],
        state=state,
        outbound=[outbound(f"answer {seqs[0]}.{n}") for n in range(1, answers + 1)],
        history=[said(f"message {n}") for n in seqs] if history is None else history,
        checked=place(checked if checked is not None else seqs[-1]),
    )


def published(seq: int, failed: str | None = None, key: str = KEY) -> Published:
    """The report about outbound ``seq``."""
    return Published(key=key, generation=1, seq=seq, failed=failed)

"""The tables as SQLModel classes: for CRUD off the hot path, and compared with the migrations.

The hot path (turns, calls) runs on the functions in ``sql/``; what the columns mean stands there.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Computed, DateTime, Identity, Integer, SmallInteger, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel

TIME = DateTime(timezone=True)
METADATA = SQLModel.metadata
MESSAGE_BYTES = "octet_length((message)::text)"


def _number(**options: Any) -> Any:
    return Field(default=0, sa_type=BigInteger, **options)


def _json(nullable: bool = False) -> Any:
    return Field(default=None, sa_column=Column(JSONB, nullable=nullable))


class Era(SQLModel, table=True):
    """Raised by a restore (R6)."""

    id: bool = Field(default=True, primary_key=True)
    generation: int = _number()


class Grace(SQLModel, table=True):
    """Until when nobody takes over an expired lease (R11)."""

    id: bool = Field(default=True, primary_key=True)
    until: datetime = Field(sa_type=TIME)


class Conversation(SQLModel, table=True):
    """Lease, counters and controls of a conversation."""

    key: str = Field(primary_key=True, sa_type=Text)
    tenant_id: int = Field(
        sa_column=Column(BigInteger, Identity(always=True), nullable=False, unique=True)
    )
    organisation: str = Field(default="default", sa_type=Text)
    address: str = Field(default="", sa_type=Text)
    epoch: int = _number()
    owner: str | None = Field(default=None, sa_type=Text)
    lease_until: datetime = Field(sa_type=TIME)
    idle_since: datetime | None = Field(default=None, sa_type=TIME)
    checked_generation: int = _number()
    checked_seq: int = _number()
    out_seq: int = _number()
    stop_generation: int = _number()
    stop_seq: int = _number()
    new_generation: int = _number()
    new_seq: int = _number()


class Mailbox(SQLModel, table=True):
    """Stored stream messages and what became of them."""

    key: str = Field(primary_key=True, sa_type=Text)
    generation: int = _number(primary_key=True)
    seq: int = _number(primary_key=True)
    source_id: str = Field(sa_type=Text)
    body: dict[str, Any] | None = _json(nullable=True)
    state: str = Field(default="waiting", sa_type=Text)
    reason: str | None = Field(default=None, sa_type=Text)
    attempts: int = Field(default=0, sa_type=SmallInteger)
    vanished: int = Field(default=0, sa_type=SmallInteger)
    begun_epoch: int | None = Field(default=None, sa_type=BigInteger)
    given_back_ms: int = _number()
    done_epoch: int | None = Field(default=None, sa_type=BigInteger)
    admitted_at: datetime = Field(sa_type=TIME)
    finished_at: datetime | None = Field(default=None, sa_type=TIME)


class Step(SQLModel, table=True):
    """Recorded manifest, model responses and tool results of a run."""

    key: str = Field(primary_key=True, sa_type=Text)
    generation: int = _number(primary_key=True)
    seq: int = _number(primary_key=True)
    run_id: str = Field(default="", primary_key=True, sa_type=Text)
    n: int = Field(primary_key=True, sa_type=Integer)
    kind: str = Field(sa_type=Text)
    body: dict[str, Any] = _json()
    epoch: int = _number()
    event_seq: int = _number()
    recorded_at: datetime = Field(sa_type=TIME)


class Outbound(SQLModel, table=True):
    """Answers in order, published or not yet."""

    key: str = Field(primary_key=True, sa_type=Text)
    generation: int = _number(primary_key=True)
    seq: int = _number(primary_key=True)
    id: str = Field(sa_type=Text)
    idempotency_key: str = Field(sa_type=Text)
    turn_generation: int | None = Field(default=None, sa_type=BigInteger)
    turn_seq: int | None = Field(default=None, sa_type=BigInteger)
    body: dict[str, Any] = _json()
    published: bool = False
    failed: str | None = Field(default=None, sa_type=Text)
    relay_until: datetime = Field(sa_type=TIME)
    created_at: datetime = Field(sa_type=TIME)


class Call(SQLModel, table=True):
    """Sub-agent calls with lease, epoch and result (R13-R15)."""

    call_id: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(default="", sa_type=Text)
    generation: int = _number()
    seq: int = _number()
    parent_run: str = Field(default="", sa_type=Text)
    request_hash: str = Field(sa_type=Text)
    state: str = Field(default="requested", sa_type=Text)
    caller_epoch: int = _number()
    epoch: int = _number()
    owner: str | None = Field(default=None, sa_type=Text)
    lease_until: datetime = Field(sa_type=TIME)
    cancel_reason: str | None = Field(default=None, sa_type=Text)
    result: dict[str, Any] | None = _json(nullable=True)
    created_at: datetime = Field(sa_type=TIME)
    finished_at: datetime | None = Field(default=None, sa_type=TIME)


class History(SQLModel, table=True):
    """Messages of finished turns, in the order of ``n``."""

    organisation: str = Field(default="default", primary_key=True, sa_type=Text)
    agent_id: str = Field(default="main", primary_key=True, sa_type=Text)
    tenant_id: int = Field(primary_key=True, sa_type=BigInteger)
    n: int = Field(
        sa_column=Column(BigInteger, Identity(always=True), primary_key=True, nullable=False)
    )
    generation: int = _number()
    seq: int = _number()
    message: dict[str, Any] = _json()
    bytes: int = Field(sa_column=Column(Integer, Computed(MESSAGE_BYTES), nullable=False))
    created_at: datetime = Field(sa_type=TIME)


class MemoryBlock(SQLModel, table=True):
    """Core memory: persona, human, working_context."""

    __tablename__ = "agent_memory_blocks"

    organisation: str = Field(default="default", primary_key=True, sa_type=Text)
    agent_id: str = Field(default="main", primary_key=True, sa_type=Text)
    tenant_id: int = _number(primary_key=True)
    block_name: str = Field(primary_key=True, sa_type=Text)
    user_id: str = Field(default="", primary_key=True, sa_type=Text)
    content: str = Field(default="", sa_type=Text)
    char_limit: int = Field(default=2000, sa_type=Integer)
    version: int = Field(default=1, sa_type=BigInteger)
    updated_at: datetime = Field(sa_type=TIME)

"""What the turn API promises, as plain Python: one conversation, without a database.

Each method is one call. It raises ``Refused`` and changes nothing, or changes the model and returns
what the caller must be told. Positions are plain numbers; time does not exist, leases are live,
expired or handed back because somebody says so.
"""

from dataclasses import dataclass, field
from typing import Any

from posthouse.errors import BadRequest, Fenced, PosthouseError
from tests.integration.memory.requests import GENERATION


class Refused(Exception):
    """The call must raise ``kind``."""

    def __init__(self, kind: type[PosthouseError]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


@dataclass
class Message:
    """A row of the mailbox."""

    source: str
    state: str
    attempts: int = 0
    vanished: int = 0
    begun: int | None = None
    done: int | None = None
    stopped_by: int | None = None

    @property
    def outcome(self) -> str:
        """What its sender still has to be told: a command names itself what it stopped."""
        return "done" if self.stopped_by is not None else self.state


@dataclass
class Conversation:
    """A conversation, its mailbox, turns and outbound."""

    limit: int
    exists: bool = False
    epoch: int = 0
    owner: str | None = None
    lease: str = "handed back"
    checked: int = 0
    stop: int = 0
    new: int = 0
    mailbox: dict[int, Message] = field(default_factory=dict)
    manifests: dict[int, list[int]] = field(default_factory=dict)
    steps: dict[int, dict[int, str]] = field(default_factory=dict)
    sent: list[tuple[str, str]] = field(default_factory=list)
    published: set[int] = field(default_factory=set)
    history: list[tuple[int, str]] = field(default_factory=list)

    # What is asked of it

    def waiting(self) -> list[int]:
        """Positions that wait, in order."""
        return sorted(seq for seq, m in self.mailbox.items() if m.state == "waiting")

    def unpublished(self) -> list[int]:
        """Numbers of outbound messages that nobody reported yet."""
        return [n for n in range(1, len(self.sent) + 1) if n not in self.published]

    def is_held(self, epoch: int) -> bool:
        """Whether this epoch may act."""
        return self.epoch == epoch and self.owner is not None and self.lease != "handed back"

    def is_live(self) -> bool:
        """Whether nobody else may take it."""
        return self.owner is not None and self.lease == "live"

    def member_of_begun(self, seq: int) -> bool:
        """Whether a turn that has a manifest, and whose head waits, names this message."""
        return any(
            seq in positions and self.mailbox[head].state == "waiting"
            for head, positions in self.manifests.items()
        )

    # Leases

    def expire(self) -> None:
        """The holder did not renew for a TTL."""
        if self.lease == "live":
            self.lease = "expired"

    def take(self, worker: str) -> None:
        """A free or expired lease goes to a worker."""
        if self.owner is not None:
            for m in self.mailbox.values():
                if m.state == "waiting" and m.begun is not None:
                    m.vanished += 1
                    m.begun = None
        self.epoch += 1
        self.owner, self.lease = worker, "live"

    def renew(self, worker: str, epoch: int) -> bool:
        """Whether the lease goes on."""
        if not self.is_held(epoch) or self.owner != worker:
            return False
        self.lease = "live"
        return True

    def hold(self, epoch: int) -> None:
        """Raises Fenced for anybody but the holder."""
        if not self.is_held(epoch):
            raise Refused(Fenced)

    def release(self, epoch: int) -> None:
        """The holder hands it back."""
        if self.epoch == epoch and not self.is_held(epoch) and self.exists:
            return
        self.hold(epoch)
        self._unbegin(epoch)
        self.lease = "handed back"
        if not self.waiting():
            self.owner = None

    def _unbegin(self, epoch: int) -> None:
        for m in self.mailbox.values():
            if m.state == "waiting" and m.begun == epoch:
                m.attempts, m.begun = max(0, m.attempts - 1), None

    # Ingress

    def find(self, source: str) -> Message | None:
        """The message with this source id."""
        return next((m for m in self.mailbox.values() if m.source == source), None)

    def store(self, seq: int, source: str, readable: bool) -> Message:
        """Keep a message, once per source id."""
        if known := self.find(source):
            return known
        if seq in self.mailbox:
            raise Refused(BadRequest)
        state = "waiting"
        if not readable:
            state = "failed"
        elif seq <= self.stop:
            state = "stopped"
        elif len(self.waiting()) >= self.limit:
            state = "refused"
        self.exists = True
        self.mailbox[seq] = Message(source, state)
        return self.mailbox[seq]

    def open(self, worker: str, seq: int, source: str, readable: bool) -> dict[str, Any]:
        """Anybody found a message; a lease that is free or expired goes to ``worker``."""
        m = self.store(seq, source, readable)
        if not self.is_live() and self.waiting():
            before = self.owner
            self.take(worker)
            return {"state": "opened", "message": m.outcome, "took_over": before}
        return {"state": "busy" if m.state == "waiting" else "done", "message": m.outcome}

    def admit(self, epoch: int, seq: int, source: str, readable: bool) -> dict[str, Any]:
        """The holder found a message in the stream."""
        self.hold(epoch)
        m = self.store(seq, source, readable)
        self.checked = max(self.checked, seq)
        return {"message": m.outcome, "waiting": self.waiting()[:10]}

    def control(self, op: str, seq: int) -> dict[str, Any]:
        """A command at a place of the stream."""
        self.exists = True
        before = [s for s in self.waiting() if s < seq]
        running = any(self.mailbox[s].begun is not None for s in before)
        stopped: list[Message] = []
        if op == "stop":
            self.stop = max(self.stop, seq)
            for m in [self.mailbox[s] for s in before if not self.member_of_begun(s)]:
                m.state, m.stopped_by = "stopped", seq
            # A repeat names the same messages.
            stopped = [m for m in self.mailbox.values() if m.stopped_by == seq]
        elif op == "new":
            self.new = max(self.new, seq)
        ids = sorted(m.source for m in stopped)
        return {"running": running, "stopped": ids, "waiting": len(self.waiting())}

    # Turns

    def begin(self, epoch: int, positions: list[int]) -> dict[str, Any]:
        """The turn of the first message that waits."""
        self.hold(epoch)
        waiting = self.waiting()
        if not waiting or positions[0] != waiting[0]:
            raise Refused(BadRequest)
        head = waiting[0]
        chosen = sorted(p for p in positions if p in waiting)
        members = self.manifests.setdefault(head, chosen)
        for seq in members:
            m = self.mailbox[seq]
            if m.begun != epoch:
                m.attempts, m.begun = m.attempts + 1, epoch
        visible = [text for turn, text in self.history if head <= self.new or turn > self.new]
        return {
            "members": members,
            "attempts": [self.mailbox[s].attempts for s in members],
            "vanished": [self.mailbox[s].vanished for s in members],
            "steps": dict(self.steps.get(head, {})),
            "history": visible,
        }

    def under_way(self, epoch: int, turn: int) -> bool:
        """Whether this holder has begun the turn and not ended it."""
        m = self.mailbox.get(turn)
        return m is not None and m.state == "waiting" and m.begun == epoch

    def record(self, epoch: int, turn: int, n: int, text: str) -> None:
        """A step of the running turn."""
        self.hold(epoch)
        if not self.under_way(epoch, turn):
            raise Refused(BadRequest)
        self._step(epoch, turn, n, text)

    def _step(self, epoch: int, turn: int, n: int, text: str) -> None:
        steps = self.steps.setdefault(turn, {})
        if n == 0:  # the manifest's
            raise Refused(BadRequest)
        if n in steps:
            if steps[n] != text:
                raise Refused(BadRequest)
            return
        steps[n] = text
        for m in self.mailbox.values():
            if m.state == "waiting" and m.begun == epoch and m.attempts > 1:
                m.attempts = 1

    def emit(
        self, epoch: int, turn: int, idempotency: str, step: tuple[int, str] | None
    ) -> dict[str, Any]:
        """A message in mid-turn, perhaps with its step."""
        self.hold(epoch)
        again = idempotency in dict(self.sent)
        if self.under_way(epoch, turn):
            if step:
                self._step(epoch, turn, *step)
        elif not again:
            raise Refused(BadRequest)
        return self._send(idempotency, idempotency)

    def notify(self, idempotency: str) -> dict[str, Any]:
        """A message from beside."""
        self.exists = True
        return self._send(idempotency, idempotency)

    def _send(self, idempotency: str, content: str) -> dict[str, Any]:
        keys = [key for key, _ in self.sent]
        if idempotency in keys:
            return {"seq": keys.index(idempotency) + 1, "again": True}
        self.sent.append((idempotency, content))
        return {"seq": len(self.sent), "again": False}

    def commit(
        self, epoch: int, positions: list[int], finals: list[str], history: list[Any], checked: int
    ) -> dict[str, Any]:
        """The end of a turn. History: texts, or numbers of steps."""
        messages = [self.mailbox.get(p) for p in positions]
        again = all(m is not None and m.done == epoch for m in messages)
        if not again:
            self.hold(epoch)
            self._finish(epoch, positions, history)
            for n, text in enumerate(finals, start=1):
                self._send(f"turn:{GENERATION}:{positions[0]}:{n}", text)
            self.checked = max(self.checked, checked)
            if self.waiting():
                self.lease = "live"
            else:
                self.owner, self.lease = None, "handed back"
        waiting = self.waiting()[:10] if self.is_held(epoch) else []
        return {"again": again, "freed": not waiting, "waiting": waiting}

    def _finish(self, epoch: int, positions: list[int], history: list[Any]) -> None:
        ended = [self.mailbox[p] for p in positions if p in self.waiting()]
        if len(ended) != len(positions) or len(set(positions)) != len(positions):
            raise Refused(BadRequest)
        steps = self.steps.get(positions[0], {})
        if any(isinstance(entry, int) and entry not in steps for entry in history):
            raise Refused(BadRequest)
        for m in ended:
            m.state, m.done, m.begun = "done", epoch, None
        self._unbegin(epoch)
        for entry in history:
            text = steps[entry] if isinstance(entry, int) else entry
            self.history.append((positions[0], text))

"""A client of event streams that keeps all it got, and can go on at another server."""

import asyncio
import json
from typing import Any, NamedTuple

import httpx

from posthouse.events import StreamEvent
from posthouse.live import LiveTurn
from posthouse.service import end
from tests.support.wait import eventually

TIMEOUT_S = 30.0


class Sent(NamedTuple):
    """An event as it came."""

    id: str
    event_type: str
    event: StreamEvent


class Listener:
    """Reads one conversation in the background; ``sent`` is everything so far."""

    def __init__(self, conversation: str) -> None:
        self._path = f"/api/conversations/{conversation}/events"
        self._task: asyncio.Task[None] | None = None
        self.sent: list[Sent] = []

    async def connect(self, gateway_url: str) -> None:
        """Open the stream, behind what came already; returns once it is open."""
        opened = asyncio.Event()
        self._task = asyncio.create_task(self._read(gateway_url, opened))
        opening = asyncio.create_task(opened.wait())
        await asyncio.wait({opening, self._task}, return_when=asyncio.FIRST_COMPLETED)
        await end(opening)
        if self._task.done():
            await self._task

    async def hang_up(self) -> None:
        """Close the stream."""
        if self._task is not None:
            await end(self._task)

    async def shows(self, text: str) -> None:
        """Wait until this is what the newest turn shows."""
        await eventually(lambda: self._text() == text, TIMEOUT_S, f"shown: {text[:40]}…")

    async def turn(self, timeout_s: float = TIMEOUT_S) -> LiveTurn:
        """The newest turn, once it is over."""

        def over() -> LiveTurn | None:
            turns = self.turns()
            return turns[-1] if turns and turns[-1].over else None

        return await eventually(over, timeout_s, f"the turn is over: {self._path}")

    def turns(self) -> list[LiveTurn]:
        """What a reader would show of each workflow."""
        turns: dict[str, LiveTurn] = {}
        for _, _, event in self.sent:
            turns.setdefault(event.workflow_id, LiveTurn(event.workflow_id)).take(event)
        return list(turns.values())

    def _text(self) -> str:
        turns = self.turns()
        return turns[-1].text if turns else ""

    async def _read(self, gateway_url: str, opened: asyncio.Event) -> None:
        headers = {"Last-Event-ID": self.sent[-1].id} if self.sent else {}
        async with (
            httpx.AsyncClient(base_url=gateway_url, timeout=TIMEOUT_S) as http,
            http.stream("GET", self._path, headers=headers) as response,
        ):
            assert response.status_code == 200, await response.aread()
            opened.set()
            fields: dict[str, Any] = {}
            buffer = b""
            async for chunk in response.aiter_bytes():
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    self._take(line.decode(), fields)

    def _take(self, line: str, fields: dict[str, Any]) -> None:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line:
            if "data" in fields:
                event = StreamEvent(**json.loads(fields["data"]))
                self.sent.append(Sent(fields["id"], fields["event"], event))
            fields.clear()

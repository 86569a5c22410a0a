"""``posthouse events``: what the agents are doing, event by event."""

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR, DataDirOption, connected, find_bus
from posthouse.cli.conversation import DEFAULT_ADDRESS, chat_address
from posthouse.cli.printable import printable, printable_json

if TYPE_CHECKING:
    from posthouse.feed import Arrived, Place

_PAYLOAD_CHARACTERS = 120
_WORKFLOW_CHARACTERS = 8


def events(
    address: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="ADDRESS", help="Which conversation.", show_default=DEFAULT_ADDRESS
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All conversations.")] = False,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="start, new, or the id of the last event you know."
        ),
    ] = "new",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: id, conversation, event.")
    ] = False,
    until_final: Annotated[
        bool, typer.Option("--until-final", help="End after the first final event.")
    ] = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> None:
    """Follow the events of one conversation, or of all.

    The bus is $POSTHOUSE_NATS_URL, else the stack that runs in the data directory. Ctrl-C ends it
    (exit code 0). When NATS was away it goes on by itself.
    """
    from posthouse import subjects

    if all_ and address is not None:
        raise typer.BadParameter("name a conversation or ask for all", param_hint="--as, --all")
    chosen = chat_address(address or DEFAULT_ADDRESS)
    subject = subjects.EVENTS_ALL if all_ else subjects.events_of(chosen)
    after = _place(from_)
    printer = _Printer(as_json, all_, until_final)
    try:
        asyncio.run(_follow(find_bus(data_dir), subject, after, printer))
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader has enough, as `head` does. Python would complain again at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _place(text: str) -> "Place | None":
    from posthouse.errors import BadRequest
    from posthouse.feed import BEGINNING, Place

    if text == "new":
        return None
    if text == "start":
        return BEGINNING
    try:
        return Place.parse(text)
    except BadRequest as error:
        raise typer.BadParameter(
            f"write start, new or an id; {error.message}", param_hint="--from"
        ) from error


class _Printer:
    """Prints events as they come; True when the last one is printed."""

    def __init__(self, as_json: bool, with_conversation: bool, until_final: bool) -> None:
        self._as_json = as_json
        self._with_conversation = with_conversation
        self._until_final = until_final

    def print(self, arrived: "Arrived") -> bool:
        """Print one."""
        line = json_line(arrived) if self._as_json else text_line(arrived, self._with_conversation)
        print(line, flush=True)
        return self._until_final and arrived.event.final


async def _follow(url: str, subject: str, after: "Place | None", printer: _Printer) -> None:
    import structlog

    from posthouse.feed import EventFeed

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("WARNING"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    async with connected(url, tell=True) as client, EventFeed(client, subject, after) as feed:
        async for arrived in feed:
            if printer.print(arrived):
                return


def json_line(arrived: "Arrived") -> str:
    """An event as one line of JSON that no terminal obeys."""
    whole = {
        "id": str(arrived.place),
        "conversation": arrived.key,
        "event": arrived.event.model_dump(mode="json"),
    }
    return printable_json(json.dumps(whole, ensure_ascii=False, separators=(",", ":")))


def text_line(arrived: "Arrived", with_conversation: bool) -> str:
    """An event for people: local time, workflow, number, type and what it says in short."""
    event = arrived.event
    parts = [
        f"{event.timestamp.astimezone():%H:%M:%S}",
        *([arrived.key] if with_conversation else []),
        event.workflow_id[-_WORKFLOW_CHARACTERS:],
        f"{event.seq:>3}",
        f"{event.event_type:<18}",
        _short(event.payload),
    ]
    return printable("  ".join(parts).rstrip()).replace("\n", "␊")


def _short(payload: Any) -> str:
    if isinstance(payload, dict):
        told = {name: value for name, value in payload.items() if value not in (None, [])}
        text = " ".join(f"{name}={_value(value)}" for name, value in told.items())
    else:
        text = "" if payload is None else _value(payload)
    if len(text) <= _PAYLOAD_CHARACTERS:
        return text
    return text[: _PAYLOAD_CHARACTERS - 1] + "…"


def _value(value: object) -> str:
    """As JSON; a plain word without its quotes."""
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set(' "=')
    return str(value) if value and plain else printable_json(json.dumps(value, ensure_ascii=False))

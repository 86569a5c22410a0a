"""The command itself: whom to be, and whether there is a person in front of it."""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR, DataDirOption, connected, find_bus
from posthouse.cli.conversation import DEFAULT_ADDRESS, Conversation, chat_address

if TYPE_CHECKING:
    from posthouse.address import Address
    from posthouse.texts import Language

# The first of them that is set names the language of a program's messages, as for gettext.
LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def chat(
    address: Annotated[
        str, typer.Option("--as", metavar="ADDRESS", help="Who speaks, and in which conversation.")
    ] = DEFAULT_ADDRESS,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> None:
    """Talk to an agent at the terminal.

    The bus is $POSTHOUSE_NATS_URL, else the stack that runs in the data directory. Without a
    terminal every line of the input is a message, and its answer is printed before the next.
    """
    speaker = chat_address(address)
    asyncio.run(_chat(find_bus(data_dir), speaker))


def language_of_locale(environment: Mapping[str, str]) -> "Language":
    """The language in which the person in front of the terminal reads."""
    named = (environment[name] for name in LOCALE_VARIABLES if environment.get(name))
    return "zh" if next(named, "").lower().startswith("zh") else "en"


async def _chat(url: str, address: "Address") -> None:
    import structlog

    # A log line would stand in the middle of what is typed.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("CRITICAL"))
    at_terminal = _has_terminal()  # there the session itself says when the connection is lost
    async with connected(url, tell=not at_terminal) as client:
        conversation = Conversation(client, address)
        await conversation.listen()
        if at_terminal:
            from posthouse.cli.chat.session import Session

            await Session(client, conversation, language_of_locale(os.environ)).run()
        else:
            from posthouse.cli.chat.piped import converse

            await converse(conversation)


def _has_terminal() -> bool:
    """True for one with a cursor that can be moved."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

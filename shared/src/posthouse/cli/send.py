"""``posthouse send``: one message to an agent, and its answer."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR, DataDirOption, connected, find_bus
from posthouse.cli.conversation import DEFAULT_ADDRESS, Conversation, chat_address, is_utf8
from posthouse.cli.printable import printable

if TYPE_CHECKING:
    from posthouse.address import Address
    from posthouse.messages import InboundMessage, OutboundMessage

EXIT_TIMED_OUT = 3


def send(
    text: Annotated[str, typer.Argument(help="What to say.")],
    address: Annotated[
        str, typer.Option("--as", metavar="ADDRESS", help="Who says it, and in which conversation.")
    ] = DEFAULT_ADDRESS,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait; 0 = not at all.")
    ] = 60.0,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> None:
    """Send a message to an agent and print the answer.

    The bus is $POSTHOUSE_NATS_URL, else the stack that runs in the data directory. Exit code 3:
    the message was sent and no answer came in time.
    """
    if not text.strip():
        raise typer.BadParameter("there is nothing to send; write some text", param_hint="TEXT")
    if not is_utf8(text):
        raise typer.BadParameter("the text is not UTF-8", param_hint="TEXT")
    sender = chat_address(address)
    asyncio.run(_send(find_bus(data_dir), sender, text, wait))


async def _send(url: str, address: "Address", text: str, wait_s: float) -> None:
    async with connected(url, tell=True) as client:
        conversation = Conversation(client, address)
        message = conversation.message(text)
        if wait_s:
            # Before publishing, so that no answer comes too early to be seen.
            await conversation.listen()
        await conversation.send(message)
        if wait_s:
            await print_answers(conversation, message, wait_s)
        else:
            typer.echo(message.id)


async def print_answers(
    conversation: Conversation, message: "InboundMessage", wait_s: float
) -> None:
    """Print what answers the message, up to its end. Raises Exit(3) after ``wait_s`` seconds."""
    try:
        async with asyncio.timeout(wait_s):
            async for answer in conversation.answers_to(message.id):
                typer.echo(as_text(answer))
    except TimeoutError:
        typer.echo(
            f"posthouse: no answer in {wait_s:g} s; the message is stored as {message.id} "
            "and will be answered",
            err=True,
        )
        raise typer.Exit(EXIT_TIMED_OUT) from None


def as_text(answer: "OutboundMessage") -> str:
    """An answer as a terminal shows it: its text, then where its files are."""
    files = [media.url or media.object or "" for media in answer.media]
    return printable("\n".join((answer.content, *files)))

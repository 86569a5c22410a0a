"""``posthouse send``: one message to an agent, and its answer."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR, DataDirOption, connected, find_bus
from posthouse.errors import AddressError, BadRequest, Unavailable

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext

    from posthouse.messages import InboundMessage, OutboundMessage

DEFAULT_ADDRESS = "im://cli/local"
EXIT_TIMED_OUT = 3
PUBLISH_TIMEOUT_S = 3.0
PUBLISH_ATTEMPTS = 3
HEARTBEAT_S = 1.0


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
    from posthouse.address import Address
    from posthouse.messages import InboundMessage

    if not text.strip():
        raise typer.BadParameter("there is nothing to send; write some text", param_hint="TEXT")
    if not text.isprintable() and any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise typer.BadParameter("the text is not UTF-8", param_hint="TEXT")
    sender = Address.parse(address)
    if not sender.is_im:
        raise AddressError(f"{address} is no chat; write im://channel/id, as in {DEFAULT_ADDRESS}")
    message = InboundMessage(
        id=f"cli::{uuid4().hex}", from_=sender, conversation=sender, content=text
    )
    try:
        asyncio.run(_send(find_bus(data_dir), message, wait))
    except TimeoutError:
        typer.echo(
            f"posthouse: no answer in {wait:g} s; the message is stored as {message.id} "
            "and will be answered",
            err=True,
        )
        raise typer.Exit(EXIT_TIMED_OUT) from None


async def _send(url: str, message: "InboundMessage", wait_s: float) -> None:
    from nats.js.api import DeliverPolicy

    from posthouse import streams, subjects

    async with connected(url) as client:
        js = client.jetstream()
        if not wait_s:
            await _publish(js, message)
            typer.echo(message.id)
            return
        with _clear_errors():
            # Before publishing, so that no answer comes too early to be seen.
            outbound = await js.subscribe(
                subjects.outbound(message.conversation),
                stream=streams.OUTBOUND,
                ordered_consumer=True,
                deliver_policy=DeliverPolicy.NEW,
                idle_heartbeat=HEARTBEAT_S,
            )
        await _publish(js, message)
        async with asyncio.timeout(wait_s):
            await _print_answers(outbound, message.id)


async def _publish(js: "JetStreamContext", message: "InboundMessage") -> None:
    """Store the message. Raises BadRequest, Unavailable."""
    from posthouse import commands, subjects
    from posthouse.messages import MAX_INBOUND_BYTES

    body = message.to_wire()
    if len(body) > MAX_INBOUND_BYTES:
        raise BadRequest(f"the message has {len(body)} bytes; the limit is {MAX_INBOUND_BYTES}")
    subject_of = subjects.command if commands.parse(message.content) else subjects.inbound
    subject = subject_of(message.conversation)
    headers = {"Nats-Msg-Id": f"{subject}:{message.id}"}
    with _clear_errors():
        for attempt in range(1, PUBLISH_ATTEMPTS + 1):
            try:
                await js.publish(subject, body, timeout=PUBLISH_TIMEOUT_S, headers=headers)
                return
            except TimeoutError:
                # The message may be stored and only the answer lost; by its id a repeat is known.
                if attempt == PUBLISH_ATTEMPTS:
                    raise


async def _print_answers(outbound: "Subscription", message_id: str) -> None:
    """Print what answers the message, up to its final answer or a notice. Raises Unavailable."""
    seen: set[str] = set()
    async for raw in outbound.messages:
        answer = _read(raw.data)
        # After a reconnect the consumer starts again from the beginning.
        if answer is None or message_id not in answer.in_reply_to or answer.id in seen:
            continue
        seen.add(answer.id)
        typer.echo(answer.content)
        for media in answer.media:
            typer.echo(media.url or media.object)
        if answer.kind != "message":
            return
    raise Unavailable("the connection to the bus was closed")


def _read(body: bytes) -> "OutboundMessage | None":
    from posthouse.messages import OutboundMessage

    try:
        return OutboundMessage.model_validate_json(body)
    except ValueError:  # not one of ours: anybody may publish on a bus without accounts
        return None


@contextmanager
def _clear_errors() -> Iterator[None]:
    import nats.errors
    from nats.js import errors as js_errors

    try:
        yield
    except (js_errors.NotFoundError, js_errors.NoStreamResponseError) as error:
        raise BadRequest("this bus has no Posthouse streams; run `posthouse bootstrap`") from error
    except js_errors.APIError as error:
        raise BadRequest(f"the bus refused the message: {error.description}") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise Unavailable(f"the bus did not take the message: {error or 'timeout'}") from error

"""How commands find the bus and talk to it."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.errors import PosthouseError, Unavailable

if TYPE_CHECKING:
    from nats.aio.client import Client

URL_VARIABLE = "POSTHOUSE_NATS_URL"
CONNECT_TIMEOUT_S = 3.0
RETRY_S = 0.25
PING_S = 5
DEFAULT_DATA_DIR = Path(".posthouse")

DataDirOption = Annotated[
    Path, typer.Option("--data-dir", help="Directory of the stack that `posthouse up` runs.")
]


class NotRunning(PosthouseError):
    """No bus was named and none was found."""

    code = "not_running"


def find_bus(data_dir: Path) -> str:
    """The NATS URL: of the environment, else of the stack in ``data_dir``, else of posthouse.yaml.

    Raises NotRunning when none of them names one, and ConfigError.
    """
    from posthouse.embedded.datadir import DataDir

    if url := os.environ.get(URL_VARIABLE):
        return url
    if running := DataDir(data_dir).running():
        return running.nats_url
    from posthouse.settings import load  # late: the other places answer without its import

    settings = load()
    if "nats_url" in settings.model_fields_set:
        return settings.nats_url
    raise NotRunning(
        f"no running posthouse in {data_dir}; start one with `posthouse up`, "
        f"name its directory with --data-dir, or set {URL_VARIABLE}"
    )


@asynccontextmanager
async def connected(url: str, tell: bool = False) -> AsyncIterator["Client"]:
    """A connection for one command. Raises Unavailable when there is none within 3 seconds.

    Once made it is made again whenever the server comes back; ``tell`` says so on standard error.
    """
    # Not posthouse.bus: that import would double the time such a command takes.
    import nats
    import nats.errors

    problems: deque[Exception] = deque(maxlen=1)

    async def note(error: Exception) -> None:
        problems.append(error)

    over = False

    async def lost() -> None:
        if tell and not over:
            typer.echo("posthouse: the connection to NATS is lost; waiting for it", err=True)

    async def back() -> None:
        if tell:
            typer.echo("posthouse: the connection to NATS is back", err=True)

    try:
        # nats-py alone would try the first connection for ever.
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            client = await nats.connect(
                url,
                name="posthouse-cli",
                error_cb=note,
                disconnected_cb=lost,
                reconnected_cb=back,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RETRY_S,
                ping_interval=PING_S,
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        reason = _reason(problems[-1] if problems else error)
        named = f" ({URL_VARIABLE})" if url == os.environ.get(URL_VARIABLE) else ""
        raise Unavailable(
            f"NATS does not answer at {url.rpartition('@')[2]}{named}: {reason}"
        ) from error
    try:
        yield client
    finally:
        over = True
        await _close(client)


def _reason(error: Exception) -> str:
    """Without the number and the address that asyncio puts around it."""
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number in errno.errorcode:
        return os.strerror(number).lower()
    return str(error) or f"no answer in {CONNECT_TIMEOUT_S:g} s"


async def _close(client: "Client") -> None:
    """Close; a server that is away does not hold up the end of the command."""
    import nats.errors

    # As in posthouse.bus: a cancellation that comes together with a refused connection is lost.
    client.options["max_reconnect_attempts"] = 1
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await client.close()
    except (nats.errors.Error, OSError, TimeoutError):
        return  # what mattered was acknowledged before

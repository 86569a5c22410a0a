"""``posthouse up``: the whole system on this machine."""

import asyncio
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR
from posthouse.embedded.ports import NATS_PORT, POSTGRES_PORT
from posthouse.errors import ConfigError

if TYPE_CHECKING:
    from posthouse.embedded.datadir import StackInfo
    from posthouse.embedded.stack import Stack

EXIT_KILLED = 130
EXAMPLE = "17*23+4 等于多少"

_port = partial(typer.Option, min=0, max=65535)


def up(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Where everything is kept.")
    ] = DEFAULT_DATA_DIR,
    http_port: Annotated[
        int | None, _port(help="Port of the gateway; 0 = any free one.", show_default="8080")
    ] = None,
    nats_port: Annotated[int, _port(help="Port of NATS; 0 = any free one.")] = NATS_PORT,
    postgres_port: Annotated[
        int, _port(help="Port of Postgres; 0 = any free one.")
    ] = POSTGRES_PORT,
    workers: Annotated[
        int | None, typer.Option(min=0, help="How many agent workers.", show_default="2")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration file.", show_default="posthouse.yaml")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="JSON file to write when everything answers.")
    ] = None,
) -> None:
    """Run the whole system on this machine, with its own NATS and Postgres.

    Ctrl-C stops it in order; a second Ctrl-C ends it at once (exit code 130).
    """
    from posthouse.cli.bootstrap import prepare_bus
    from posthouse.embedded.datadir import DataDir
    from posthouse.embedded.stack import Stack, StackOptions
    from posthouse.settings import load

    started = time.monotonic()
    _configure_logs()
    settings = load(config)
    if ready_file and not ready_file.parent.is_dir():
        raise ConfigError(f"--ready-file: there is no directory {ready_file.parent}")
    options = StackOptions(
        http_port=settings.http_port if http_port is None else http_port,
        nats_port=nats_port,
        postgres_port=postgres_port,
        workers=settings.workers if workers is None else workers,
        http_host=settings.http_host,
        config=config,
        ready_file=ready_file,
        workspace_dir=Path(settings.workspace_dir) if settings.workspace_dir else None,
    )
    data = DataDir(data_dir)
    with data.lock():
        typer.echo(f"Posthouse starts in {data.root}")
        stack = Stack(data, options, partial(prepare_bus, wanted=settings.domains()))

        def greet() -> None:
            _show(_next_steps(stack.info, data_dir, data.logs), time.monotonic() - started)

        if asyncio.run(_run(stack, greet)):
            raise typer.Exit(EXIT_KILLED)


async def _run(stack: "Stack", greet: Callable[[], None]) -> bool:
    """Run the stack until a signal comes; True when a second one ended it at once."""
    stop, kill = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            kill.set()
            stack.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup, SIGHUP stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
    try:
        if await _unless(stop, stack.up()):
            greet()
            await stop.wait()
        typer.echo("Posthouse stops; Ctrl-C again ends it at once")
    finally:
        await stack.down()
    return kill.is_set()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work, or give it up when ``stop`` is set first; True when it was done."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not working.done():
        working.cancel()
        await asyncio.wait((working,))
        return False
    await working
    return True


def _program() -> str:
    """How to call this program from here: by name if a shell finds it, else by its path."""
    own = Path(sys.argv[0])
    if own.name != "posthouse":
        return "python -m posthouse"
    found = shutil.which("posthouse")
    return "posthouse" if found and Path(found).samefile(own) else shlex.quote(sys.argv[0])


def _next_steps(info: "StackInfo", data_dir: Path, logs: Path) -> dict[str, str]:
    where = "" if data_dir == DEFAULT_DATA_DIR else f" --data-dir {shlex.quote(str(data_dir))}"
    return {
        "web": info.http_url,
        "try": f'{_program()} send{where} "{EXAMPLE}"',
        "NATS": info.nats_url,
        "Postgres": info.postgres_dsn,
        "logs": str(logs),
        "stop": "Ctrl-C",
    }


def _show(steps: dict[str, str], seconds: float) -> None:
    title = f"Posthouse is ready ({seconds:.1f} s)"
    if not sys.stdout.isatty():
        lines = (f"{name:<10}{value}" for name, value in steps.items())
        print(title, *lines, sep="\n", flush=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3))
    for name, value in steps.items():
        table.add_row(Text(name, style="dim"), Text(value, no_wrap=True, overflow="ignore"))
    console = Console(soft_wrap=True)
    console.print("", Text(title, style="bold green"), "", table, "", sep="\n")


def _configure_logs() -> None:
    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("INFO"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

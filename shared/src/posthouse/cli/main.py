"""The command line: one file per command.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 no answer in time (``send``,
``chat``).
"""

import sys
from typing import Annotated

import typer

from posthouse import __version__
from posthouse.cli.bootstrap import bootstrap
from posthouse.cli.chat import chat
from posthouse.cli.doctor import doctor
from posthouse.cli.events import events
from posthouse.cli.send import send
from posthouse.cli.up import up
from posthouse.errors import AddressError, ConfigError, PosthouseError

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="posthouse",
    help="Agents behind chat, on a message bus.",
    no_args_is_help=True,
    # Joins the lines of a docstring, which break where the source does.
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(chat)
app.command()(send)
app.command()(events)
app.command()(bootstrap)
app.command()(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posthouse {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Run the command of ``sys.argv``; errors that a user can act on become one clear message."""
    try:
        app()
    except (ConfigError, AddressError) as error:
        _fail(error.message, EXIT_USAGE)
    except PosthouseError as error:
        _fail(error.message, EXIT_FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", EXIT_FAILED)


def _fail(message: str, code: int) -> None:
    print(f"posthouse: {message}", file=sys.stderr)
    sys.exit(code)

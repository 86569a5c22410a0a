"""Commands that people type."""

import pytest

from posthouse.commands import OPS, Command, parse


@pytest.mark.parametrize("op", OPS)
def test_every_command_is_read(op: str) -> None:
    found = parse(f"/{op}")
    assert found is not None
    assert (found.op, found.argument) == (op, "")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("  /STOP \n", Command("stop")),
        ("/stop@my_bot", Command("stop")),
        ("／new", Command("new")),
        ("/approve  7f3a ", Command("approve", "7f3a")),
        ("/deny 7f3a 太贵了\n真的", Command("deny", "7f3a 太贵了\n真的")),
        ("/help\u3000stop", Command("help", "stop")),
    ],
)
def test_case_space_bot_and_argument(text: str, command: Command) -> None:
    assert parse(text) == command


@pytest.mark.parametrize(
    "text", ["", "  ", "/", "//stop", "/stopwatch", "please /stop", "stop", "/ſtop", "/ stop"]
)
def test_other_text_is_no_command(text: str) -> None:
    assert parse(text) is None

"""Lines for this program, and lines for the agent."""

import pytest

from posthouse.cli.chat.local import Leave, ShowHistory, read_local


@pytest.mark.parametrize("line", ["/exit", "/quit", " /EXIT ", "／quit"])
def test_leaving(line: str) -> None:
    assert read_local(line) == Leave()


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("/history", 20),
        ("/history 5", 5),
        ("/history  200 ", 200),
        ("/history 0", None),
        ("/history 201", None),
        ("/history -1", None),
        ("/history five", None),
        ("/history 9999999999999999999999", None),
        ("/history ²", None),
    ],
)
def test_history(line: str, count: int | None) -> None:
    assert read_local(line) == ShowHistory(count)


@pytest.mark.parametrize("line", ["", " ", "exit", "/stop", "/exits", "please /exit", "你好"])
def test_the_rest_goes_to_the_agent(line: str) -> None:
    assert read_local(line) is None

"""Where commands find the bus."""

from pathlib import Path

import pytest

from posthouse.cli.connect import URL_VARIABLE, NotRunning, find_bus
from posthouse.embedded.datadir import DataDir, StackInfo

INFO = StackInfo("http://x", "nats://of-the-stack", "postgresql://x", 7, {})


@pytest.fixture(autouse=True)
def no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)


def test_the_running_stack_is_found(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    with data.lock():
        data.publish(INFO)
        assert find_bus(tmp_path) == "nats://of-the-stack"


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "nats://of-the-environment")
    data = DataDir(tmp_path)
    with data.lock():
        data.publish(INFO)
        assert find_bus(tmp_path) == "nats://of-the-environment"


def test_the_configuration_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "posthouse.yaml").write_text("nats_url: nats://of-the-file\n")
    monkeypatch.chdir(tmp_path)
    assert find_bus(tmp_path / "nothing") == "nats://of-the-file"


def test_without_all_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="start one with `posthouse up`"):
        find_bus(tmp_path / "nothing")

"""Where the files of a conversation lie."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_worker.workspace.location import root_of
from posthouse.address import Address
from tests.unit.posthouse.strategies import addresses


def test_the_key_is_the_name() -> None:
    assert root_of("/ws", Address.im("cli", "local")) == "/ws/im.cli.local"
    assert root_of("/ws", Address.im("cli", "../群")) == "/ws/im.cli.=2E=2E=2F=E7=BE=A4"


def test_without_a_directory_there_are_no_files() -> None:
    assert root_of("", Address.im("cli", "local")) == ""


def test_a_relative_directory_is_that_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert root_of("files", Address.im("cli", "a")) == str(tmp_path.resolve() / "files/im.cli.a")


@given(
    st.one_of(
        addresses, st.lists(st.just("角色" * 20), min_size=1).map(lambda p: Address.agent(*p))
    )
)
def test_any_conversation_has_a_folder_of_its_own(address: Address) -> None:
    root = Path(root_of("/ws", address))
    assert root.parent == Path("/ws")
    assert root.name not in ("", ".", "..")
    assert len(root.name) <= 255
    other = Address(address.scheme, address.domain, address.id + "x")
    assert root != Path(root_of("/ws", other))

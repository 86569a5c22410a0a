"""docs/rpc.md says what the services serve."""

import typing
from pathlib import Path

import pytest

from agent_worker.ports import CallApi, TurnApi
from gateway.ports import History
from tests.contract import rpc_reference

PAGE = Path(__file__).parents[2] / "docs" / "rpc.md"


def test_the_page_is_as_the_code_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == rpc_reference.page(), (
        "docs/rpc.md differs from the code; run `make docs` and commit what it writes"
    )


@pytest.mark.parametrize(
    ("area", "port"),
    [("memory.turn", TurnApi), ("memory.call", CallApi), ("memory.history", History)],
)
def test_results_are_what_callers_expect(area: str, port: type) -> None:
    methods = [name for name in vars(port) if not name.startswith("_")]
    assert methods
    for name in methods:
        result = typing.get_type_hints(getattr(port, name))["return"]
        expected = None if result is type(None) else result
        assert rpc_reference.RESULTS[f"{area}.{name}"] is expected


def test_every_served_subject_has_a_result_and_no_other() -> None:
    assert set(rpc_reference.RESULTS) == rpc_reference.served_subjects()


def test_no_meaning_is_left_over() -> None:
    assert rpc_reference.unused_meanings() == set()

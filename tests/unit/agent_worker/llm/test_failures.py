"""How long a server asks to wait."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agent_worker.llm.failures import retry_after_s


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1.2.3"}, None),
    ],
)
def test_numbers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_date() -> None:
    then = datetime.now(UTC) + timedelta(seconds=30)

    found = retry_after_s({"retry-after": format_datetime(then, usegmt=True)})

    assert found is not None
    assert 25 < found <= 30


def test_a_date_in_the_past_means_now() -> None:
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0

"""The token estimate stays near real counts."""

import pytest

from agent_worker.llm.tokens import estimate


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("!", 1, 1),
        ("The quick brown fox jumps over the lazy dog.", 9, 12),
        ("今天天气很好，我们去公园散步吧。", 12, 17),
        ('{"id": 12345, "name": "ok"}', 8, 16),
        ("a" * 34, 18, 22),
    ],
)
def test_is_near(text: str, least: int, most: int) -> None:
    assert least <= estimate(text) <= most


def test_chinese_is_not_counted_as_english_by_length() -> None:
    assert estimate("中" * 400) > 3 * 400 / 4

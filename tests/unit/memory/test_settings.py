"""Connections of one replica (R25)."""

import os

import pytest

from memory import settings
from posthouse.settings import MemorySettings, Settings


def _size(monkeypatch: pytest.MonkeyPatch, cores: int | None, configured: int = 0) -> int:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    return settings.pool_size(Settings(memory=MemorySettings(pool_size=configured)))


def test_what_is_configured_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _size(monkeypatch, 64, configured=3) == 3


@pytest.mark.parametrize(("cores", "size"), [(None, 4), (1, 4), (4, 16), (9, 36), (64, 38)])
def test_four_a_core_within_the_share_of_a_replica(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, size: int
) -> None:
    assert _size(monkeypatch, cores) == size


def test_two_replicas_leave_room_for_others() -> None:
    each = (settings.MAX_CONNECTIONS - settings.RESERVED_CONNECTIONS) // settings.REPLICAS
    assert settings.REPLICAS * each <= settings.MAX_CONNECTIONS - settings.RESERVED_CONNECTIONS

"""Every channel is found, and its file alone makes it known."""

from collections.abc import Sequence

import pytest

from gateway import channels, registry
from gateway.egress import Egress
from gateway.ports import Channel
from posthouse import discovery
from posthouse.errors import ConfigError
from posthouse.messages import OutboundMessage
from posthouse.settings import Settings
from tests.unit.gateway.fakes import FakeChannel, FakeEgress, message


def test_every_file_builds_channels() -> None:
    found = dict(discovery.in_package(channels, "build"))
    assert "web" in found
    for build in found.values():
        assert all(channel.name and channel.domain for channel in build(Settings(), FakeEgress()))


def test_web_is_always_there() -> None:
    web = registry.discover(Settings(), FakeEgress())["web"]
    assert (web.name, web.domain, web.capabilities.idempotent) == ("web", "web", True)


async def test_web_takes_any_message_in_one_part() -> None:
    web = registry.discover(Settings(), FakeEgress())["web"]
    body: OutboundMessage = message(1, "x" * 100_000)
    parts = web.split(body)
    assert [part.content for part in parts] == [body.content]
    await web.send(body, parts[0], "key")


def test_two_channels_of_one_domain_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(settings: Settings, egress: Egress) -> Sequence[Channel]:
        return [FakeChannel()]

    monkeypatch.setattr(discovery, "in_entry_points", lambda group: [("theirs", build)])
    with pytest.raises(ConfigError, match="web"):
        registry.discover(Settings(), FakeEgress())

"""All channels there are: the files of ``gateway.channels`` and third parties' entry points."""

from collections.abc import Callable, Iterable

from gateway import channels
from gateway.egress import Egress
from gateway.ports import Channel
from posthouse import discovery
from posthouse.errors import ConfigError
from posthouse.settings import Settings

ENTRY_POINTS = "posthouse.channels"

Build = Callable[[Settings, Egress], Iterable[Channel]]


def discover(settings: Settings, egress: Egress) -> dict[str, Channel]:
    """Every bot's channel by the domain of its addresses. Raises ConfigError."""
    builders: list[Build] = [build for _, build in discovery.in_package(channels, "build")]
    builders += [build for _, build in discovery.in_entry_points(ENTRY_POINTS)]
    found: dict[str, Channel] = {}
    for build in builders:
        for channel in build(settings, egress):
            if channel.domain in found:
                raise ConfigError(f"two channels have the domain {channel.domain}")
            found[channel.domain] = channel
    return found

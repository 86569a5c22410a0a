"""``posthouse bootstrap``: create streams, consumers and buckets on the bus."""

import asyncio
from typing import TYPE_CHECKING

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR, DataDirOption, connected, find_bus

if TYPE_CHECKING:
    from nats.js import JetStreamContext


def bootstrap(data_dir: DataDirOption = DEFAULT_DATA_DIR) -> None:
    """Create what is missing on the bus, and tune what differs from this version.

    The bus is $POSTHOUSE_NATS_URL, else the stack that runs in the data directory, else nats_url
    in posthouse.yaml. Nothing that holds messages is ever changed in a way that could lose them:
    such a difference is an error.
    """
    from posthouse.settings import load

    lines = asyncio.run(_bootstrap(find_bus(data_dir), load().domains()))
    typer.echo("\n".join(lines) or "nothing to do: the bus is as this version needs it")


async def prepare_bus(url: str, wanted: list[str]) -> None:
    """Bring the bus at ``url`` into the declared shape. Raises Drift, Unavailable."""
    from posthouse.bootstrap import bootstrap as ensure

    async with connected(url) as client:
        await ensure(client.jetstream(), wanted)


async def _bootstrap(url: str, wanted: list[str]) -> list[str]:
    from posthouse.bootstrap import bootstrap as ensure

    async with connected(url) as client:
        js = client.jetstream()
        before = await _assets(js)
        tuned = await ensure(js, wanted)
        created = sorted(await _assets(js) - before)
    return [f"created {name}" for name in created] + [f"tuned {change}" for change in tuned]


async def _assets(js: "JetStreamContext") -> set[str]:
    found = set()
    for stream in await js.streams_info():
        name = str(stream.config.name)
        found.add(f"bucket {name[3:]}" if name.startswith("KV_") else f"stream {name}")
        for consumer in await js.consumers_info(name):
            found.add(f"consumer {consumer.name} on {name}")
    return found

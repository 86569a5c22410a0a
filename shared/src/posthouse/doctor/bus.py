"""Examines NATS: the server, then its streams, consumers and buckets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby

import nats
import nats.errors
from nats.aio.client import Client
from nats.js import errors as js_errors

from posthouse import bootstrap, streams
from posthouse.assets import Difference
from posthouse.bus import without_password
from posthouse.doctor import NATS_URL, Finding, Target, failed, ok, warning
from posthouse.errors import ConfigError, PosthouseError, Unavailable

NAME = "nats"
TIMEOUT_S = 4.0
# The stream CRON takes message schedules, which came with 2.12; those that repeat, with 2.14.
MIN_VERSION = (2, 12)
GOOD_VERSION = (2, 14)
# Messages of 400 kB, and replies of up to 1 MB.
MIN_PAYLOAD_BYTES = 1_000_000


async def examine(target: Target) -> list[Finding]:
    """The server, and if it can be used what is on it. Nothing without servers."""
    if not target.servers:
        return []
    url = without_password(target.settings.nats_url)
    try:
        async with _connected(target.settings.nats_url) as client:
            server = await _server(client, url)
            if any(finding.state == "failed" for finding in server):
                return server
            return [*server, *await _assets(client, target)]
    except (nats.errors.Error, OSError, PosthouseError) as error:
        text = f"NATS cannot be used at {url}: {error}"
        return [failed(NAME, text, target.unreachable(NAME, "nats-server", "nats_url"))]


async def _server(client: Client, url: str) -> list[Finding]:
    version = client.connected_server_version
    number = (version.major, version.minor)
    named = f"nats-server {version.major}.{version.minor}.{version.patch} at {url}"
    found = [ok(NAME, named)]
    if number < MIN_VERSION:
        text = f"{named} is too old for the message schedules of CRON"
        found = [failed(NAME, text, "install nats-server 2.14 or newer")]
    elif number < GOOD_VERSION:
        text = f"{named} knows no schedules that repeat"
        found = [warning(NAME, text, "install nats-server 2.14 or newer")]
    if client.max_payload < MIN_PAYLOAD_BYTES:
        text = f"max_payload is {client.max_payload} bytes; messages of 1 MB would be refused"
        found.append(failed(f"{NAME} max_payload", text, "set `max_payload: 1MB` in nats.conf"))
    try:
        await client.jetstream(timeout=TIMEOUT_S).account_info()
    except (js_errors.ServiceUnavailableError, js_errors.APIError) as error:
        text = f"JetStream is off, or not allowed for this user: {error.description or error.code}"
        remedy = "add `jetstream { store_dir: … }` to nats.conf, or start nats-server with -js"
        found.append(failed(f"{NAME} jetstream", text, remedy))
    return found


async def _assets(client: Client, target: Target) -> list[Finding]:
    js = client.jetstream(timeout=TIMEOUT_S)
    try:
        found = await bootstrap.differences(js, target.settings.domains())
    except PosthouseError as error:
        return [failed("streams", error.message, "see the log of nats-server")]
    if not found:
        return [ok("streams", "all streams, consumers and buckets are as declared")]
    return [
        _judge(list(different), target)
        for _, different in groupby(found, key=lambda difference: difference.asset)
    ]


def _judge(different: list[Difference], target: Target) -> Finding:
    asset = different[0].asset
    mending = target.command("posthouse bootstrap", NATS_URL)
    if different[0].missing:
        if asset == f"stream {streams.EVENTS}":
            return warning(asset, "it is missing; the next service creates it", f"run {mending}")
        return failed(asset, "it is missing", f"run {mending}")
    text = "; ".join(difference.change for difference in different)
    if not any(difference.incompatible for difference in different):
        return warning(asset, text, f"run {mending}")
    return failed(asset, text, _recreate(asset, target, mending))


def _recreate(asset: str, target: Target, mending: str) -> str:
    """No field that decides which messages are kept may be changed in place."""
    kind, name, *place = asset.split()
    server = f"nats --server {without_password(target.settings.nats_url)}"
    if kind == "consumer":
        return (
            f"stop the services, run `{server} consumer rm -f {place[-1]} {name}`, then {mending}"
        )
    return (
        f"stop the services, keep the messages with `{server} stream backup {name} backup-{name}`, "
        f"run `{server} stream rm -f {name}`, then {mending}"
    )


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Client]:
    """A connection. Raises Unavailable with the reason of the server, and ConfigError."""
    problems: list[Exception] = []

    async def note(error: Exception) -> None:
        problems.append(error)

    try:
        async with asyncio.timeout(TIMEOUT_S):
            # Without a second try nats-py leaves the socket of the first one open.
            client = await nats.connect(
                url,
                name="posthouse-doctor",
                max_reconnect_attempts=1,
                reconnect_time_wait=0.1,
                error_cb=note,
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        reason = str(problems[-1] if problems else error)
        raise Unavailable(reason or f"no answer in {TIMEOUT_S:g} s") from error
    except ValueError as error:
        raise ConfigError("it is no address of a server") from error
    try:
        yield client
    finally:
        await client.close()

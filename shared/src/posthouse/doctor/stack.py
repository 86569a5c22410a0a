"""Examines the stack of a data directory: its services, or the ports that it would take."""

import asyncio
import os
from pathlib import Path
from shlex import quote

import httpx

from posthouse.bus import without_password
from posthouse.doctor import NATS_URL, Finding, failed, ok, warning
from posthouse.embedded import ports
from posthouse.embedded.datadir import DEFAULT, DataDir, StackInfo
from posthouse.settings import Settings

TIMEOUT_S = 5.0


async def services(info: StackInfo, logs: Path) -> list[Finding]:
    """What ``/readyz`` of every service of a running stack says."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as http:
        asked = (_service(http, name, url, logs) for name, url in info.ready_urls.items())
        return list(await asyncio.gather(*asked))


def elsewhere(info: StackInfo) -> list[Finding]:
    """A warning when the environment names another bus than that of the running stack."""
    named = os.environ.get(NATS_URL)
    if not named or named == info.nats_url:
        return []
    url = without_password(named)
    text = f"{NATS_URL} is {url}: `posthouse send` goes there, not to the stack that runs here"
    return [warning("environment", text, f"run `unset {NATS_URL}`")]


async def _service(http: httpx.AsyncClient, name: str, url: str, logs: Path) -> Finding:
    remedy = f"see {logs / name}.log; if nothing changes, stop `posthouse up` and start it again"
    try:
        checks = dict((await http.get(url)).json()["checks"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return failed(name, f"{url} does not answer: {type(error).__name__}", remedy)
    missing = {check: result for check, result in checks.items() if result != "ok"}
    if not missing:
        return ok(name, "ready")
    text = "; ".join(f"{check}: {result}" for check, result in missing.items())
    return failed(name, f"not ready: {text}", remedy)


def starting(data: DataDir, owner: str) -> list[Finding]:
    """A `posthouse up` that has the directory and is not ready."""
    text = f"`posthouse up` (process {owner}) runs in {data.root} and is not ready"
    return [failed("stack", text, f"wait a moment; if it stays so, see {data.logs}")]


def nothing_runs(data: DataDir, settings: Settings, config: Path | None) -> list[Finding]:
    """No stack and no servers: how to start, and what would stand in the way."""
    up = f"posthouse up{_options(data, config)}"
    text = f"nothing runs in {data.root}, and no other servers are configured"
    return [failed("stack", text, f"start it with `{up}`"), *_taken(settings, up)]


def _options(data: DataDir, config: Path | None) -> str:
    """What the examination was told, for the command that starts the same stack."""
    where = (
        "" if data.root == DataDir(Path(DEFAULT)).root else f" --data-dir {quote(str(data.root))}"
    )
    return where + (f" --config {quote(str(config))}" if config else "")


def _taken(settings: Settings, up: str) -> list[Finding]:
    wanted = {
        "--http-port": (settings.http_port, settings.http_host),
        "--nats-port": (ports.NATS_PORT, ports.LOOPBACK),
        "--postgres-port": (ports.POSTGRES_PORT, ports.LOOPBACK),
    }
    return [
        failed(
            f"port {port}",
            f"it cannot be used: {reason}",
            f"free it, or start with another one: `{up} {option} 0` takes any free one",
        )
        for option, (port, host) in wanted.items()
        if port and (reason := ports.refusal(port, host))
    ]

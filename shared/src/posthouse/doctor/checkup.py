"""Puts the examination together: what to look at, and who looks."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

from posthouse import discovery
from posthouse.doctor import (
    ENTRY_POINTS,
    NATS_URL,
    POSTGRES_DSN,
    Examiner,
    Finding,
    Target,
    bus,
    failed,
    ok,
    stack,
)
from posthouse.embedded.datadir import DataDir, StackInfo
from posthouse.errors import ConfigError
from posthouse.settings import CONFIG_VARIABLE, Settings, load

TIMEOUT_S = 15.0
SERVERS = {"nats_url", "postgres_dsn"}


async def examine(data_dir: Path, config: Path | None = None) -> list[Finding]:
    """Everything Posthouse needs. Raises nothing: what goes wrong is a finding."""
    try:
        settings = load(config)
    except ConfigError as error:
        remedy = "correct it; posthouse.yaml of the repository explains every key"
        return [failed("configuration", error.message, remedy)]
    data = DataDir(data_dir)
    running = data.running()
    target = _target(settings, config, running, data.logs)
    found = await asyncio.gather(
        _surroundings(data, running, target, config), *_examinations(target)
    )
    readable = ok("configuration", "the configuration can be read")
    return [readable, *(finding for findings in found for finding in findings)]


def _target(
    settings: Settings, config: Path | None, running: StackInfo | None, logs: Path
) -> Target:
    """The servers of the running stack, else those that the configuration names."""
    environment = {CONFIG_VARIABLE: str(config)} if config else {}
    if running is None:
        named = bool(SERVERS & settings.model_fields_set)
        return Target(settings, servers=named, environment=environment)
    environment |= {NATS_URL: running.nats_url, POSTGRES_DSN: running.postgres_dsn}
    addresses = {"nats_url": running.nats_url, "postgres_dsn": running.postgres_dsn}
    return Target(settings.model_copy(update=addresses), environment=environment, logs=logs)


async def _surroundings(
    data: DataDir, running: StackInfo | None, target: Target, config: Path | None
) -> list[Finding]:
    if running is not None:
        return [*stack.elsewhere(running), *await stack.services(running, data.logs)]
    if owner := data.owner():
        return stack.starting(data, owner)
    return [] if target.servers else stack.nothing_runs(data, target.settings, config)


def _examinations(target: Target) -> list[Awaitable[list[Finding]]]:
    examiners: dict[str, Examiner] = {"nats": bus.examine}
    try:
        examiners |= dict(discovery.in_entry_points(ENTRY_POINTS))
    except ConfigError as error:
        return [_broken(error), *(_run(*one, target) for one in examiners.items())]
    return [_run(name, examiner, target) for name, examiner in examiners.items()]


async def _run(name: str, examiner: Examiner, target: Target) -> list[Finding]:
    remedy = "report it: the examination itself is broken"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await examiner(target)
    except TimeoutError:
        return [failed(name, f"the examination took longer than {TIMEOUT_S:g} s", "try again")]
    except Exception as error:  # an examiner may fail in any way; the others must be heard
        return [failed(name, f"the examination failed: {type(error).__name__}: {error}", remedy)]


async def _broken(error: ConfigError) -> list[Finding]:
    return [failed("examiners", error.message, "install Posthouse again, or remove that package")]

"""``posthouse doctor``: what is wrong, and how to mend it."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.connect import DEFAULT_DATA_DIR, DataDirOption

if TYPE_CHECKING:
    from posthouse.doctor import Finding, State

EXIT_FAILED = 1
COLOURS = {"ok": "green", "warning": "yellow", "failed": "bold red"}
WIDTH = max(map(len, COLOURS))
WORST_FIRST: "tuple[State, ...]" = ("failed", "warning", "ok")


def doctor(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    config: Annotated[
        Path | None, typer.Option(help="Configuration file.", show_default="posthouse.yaml")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check everything that Posthouse needs, and say how to mend what is wrong.

    Looks at the running stack of the data directory, else at the configured servers. Changes
    nothing; each model of a tier is asked one short question. Exit code 0: nothing failed.
    """
    import structlog

    from posthouse.doctor.checkup import examine

    # The findings say it all; the log of a library would stand between them.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("CRITICAL"))
    findings = asyncio.run(examine(data_dir, config))
    healthy = all(finding.state != "failed" for finding in findings)
    if as_json:
        _print_json(findings, healthy)
    elif sys.stdout.isatty():
        _print_coloured(findings)
    else:
        _print_plain(findings)
    if not healthy:
        raise typer.Exit(EXIT_FAILED)


def summary(findings: "list[Finding]") -> str:
    """The last line."""
    counts = Counter(finding.state for finding in findings)
    if set(counts) == {"ok"}:
        return f"all {len(findings)} checks are ok"
    return ", ".join(f"{counts[state]} {state}" for state in WORST_FIRST if counts[state])


def _print_json(findings: "list[Finding]", healthy: bool) -> None:
    shown = [vars(finding) for finding in findings]
    print(json.dumps({"healthy": healthy, "findings": shown}, ensure_ascii=False, indent=2))


def _print_plain(findings: "list[Finding]") -> None:
    for finding in findings:
        print(f"{finding.state:<{WIDTH}}  {finding.name}: {finding.text}")
        if finding.remedy:
            print(f"{'':<{WIDTH}}  -> {finding.remedy}")
    print(summary(findings))


def _print_coloured(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.text import Text

    # Soft: a command that is broken into two lines cannot be copied.
    console = Console(soft_wrap=True)
    for finding in findings:
        line = Text(f"{finding.state:<{WIDTH}}", style=COLOURS[finding.state])
        line.append(f"  {finding.name}", style="bold").append(f"  {finding.text}", style="default")
        console.print(line)
        if finding.remedy:
            console.print(Text(f"{'':<{WIDTH}}  → {finding.remedy}", style="cyan"))
    console.print(Text(summary(findings), style="dim"))

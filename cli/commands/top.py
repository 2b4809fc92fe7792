"""`elasticjob top`: the jobs that Brain knows, their speeds and the last decision about each."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticjob.cli.asking import HERE, TokenFile, Url, asked

if TYPE_CHECKING:
    from rich.table import Table

EVERY = 2.0


def top(
    brain: Url = HERE,
    token_file: TokenFile = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also show jobs that have finished.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print once, and exit.")] = False,
) -> None:
    """Show the jobs that Brain knows, newest first, until Ctrl-C.

    Example: [bold]elasticjob top --all --once[/]
    """
    from rich.console import Console
    from rich.live import Live

    path = "/v1/jobs" if everything else "/v1/jobs?running"

    def seen() -> Table:
        return table(asked(brain, token_file, path)["jobs"], datetime.now(UTC))

    if once:
        Console().print(seen())
        return
    with Live(seen(), auto_refresh=False) as live:
        while True:
            time.sleep(EVERY)
            live.update(seen(), refresh=True)


def table(jobs: Iterable[dict[str, Any]], now: datetime) -> Table:
    """Return the jobs as a table."""
    from rich.table import Table

    made = Table(box=None, header_style="bold")
    for name in (
        "NAMESPACE",
        "NAME",
        "OWNER",
        "PHASE",
        "MODE",
        "WORLD",
        "FULFILMENT",
        "STEPS/S",
        "GOODPUT",
        "AGE",
    ):
        made.add_column(name)
    for job in jobs:
        status = job["status"]
        world = status.get("worldSize")
        made.add_row(
            job["namespace"],
            job["name"],
            job["owner"],
            job["phase"],
            job["mode"],
            "–" if world is None else str(world),
            share(status.get("fulfilment")),
            f"{status['stepsPerSecond']:.1f}" if status.get("stepsPerSecond") else "–",
            share(status.get("goodput")),
            age(datetime.fromisoformat(job["began"]), now),
        )
    return made


def share(value: float | None) -> str:
    """Return a share as people read it."""
    return "–" if value is None else f"{value:.0%}"


def age(began: datetime, now: datetime) -> str:
    """Return how long ago something was, as kubectl says it."""
    seconds = max(0, int((now - began).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"

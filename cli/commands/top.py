"""`elasticjob top`: the jobs that Brain knows, their speeds and the last decision about each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from elasticjob.cli.asking import HERE, TokenFile, Url, asked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EVERY = 2.0
WIDE = 500
"""Columns of an output that is no terminal: whatever reads it gets whole names."""
DISPENSABLE = ("MODE", "OWNER", "FULFILMENT", "NAMESPACE")
"""Columns that a narrow terminal does not show, the first of them first."""


def top(
    brain: Url = HERE,
    token_file: TokenFile = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also show jobs that have finished.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print once, and exit.")] = False,
) -> None:
    """Show the jobs that Brain knows, newest first, until Ctrl-C; once where the output is no terminal.

    Example: [bold]elasticjob top --all --once[/]
    """
    from rich.console import Console
    from rich.live import Live

    path = "/v1/jobs" if everything else "/v1/jobs?running"
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)

    def seen() -> Table:
        jobs = asked(brain, token_file, path)["jobs"]
        return fitting(jobs, datetime.now(UTC), console)

    if once or not console.is_terminal:
        console.print(seen())
        return
    with Live(seen(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(EVERY)
            live.update(seen(), refresh=True)


def fitting(jobs: Sequence[dict[str, Any]], now: datetime, console: Console) -> Table:
    """Return the jobs as a table that a console shows whole, if leaving out some columns makes it fit."""
    from rich.measure import Measurement

    for count in range(len(DISPENSABLE) + 1):
        made = table(jobs, now, without=DISPENSABLE[:count])
        if Measurement.get(console, console.options.update(max_width=WIDE), made).maximum <= console.width:
            break
    return made


def table(jobs: Iterable[dict[str, Any]], now: datetime, without: Sequence[str] = ()) -> Table:
    """Return the jobs as a table."""
    from rich.table import Table

    made = Table(box=None, header_style="bold", pad_edge=False)
    shown = {name: cell for name, cell in COLUMNS.items() if name not in without}
    for name in (*shown, "AGE"):
        made.add_column(name, no_wrap=True)
    for job in jobs:
        cells = (cell(job, job["status"]) for cell in shown.values())
        made.add_row(*cells, age(datetime.fromisoformat(job["began"]), now))
    return made


COLUMNS: Final[Mapping[str, Callable[[dict[str, Any], dict[str, Any]], str]]] = {
    "NAMESPACE": lambda job, status: job["namespace"],
    "NAME": lambda job, status: job["name"],
    "OWNER": lambda job, status: job["owner"],
    "PHASE": lambda job, status: job["phase"],
    "MODE": lambda job, status: job["mode"],
    "WORLD": lambda job, status: str(status.get("worldSize", "–")),
    "FULFILMENT": lambda job, status: share(status.get("fulfilment")),
    "STEPS/S": lambda job, status: f"{status['stepsPerSecond']:.1f}" if status.get("stepsPerSecond") else "–",
    "GOODPUT": lambda job, status: share(status.get("goodput")),
}
"""What each column shows of a job and its status."""


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

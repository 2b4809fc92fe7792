"""`elasticjob top`: jobs and their speeds, from the API server; with --brain those that Brain knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from elasticjob.cli.asking import TokenFile, Url, ask_brain
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Everywhere, Namespace
from elasticjob.cli.jobs.table import COLOURS, WIDE, age, console
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import Output, hand_over_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from elasticjob.client import Client
    from elasticjob.kube.objects.kinds import Manifest

EVERY = 2.0
Status = dict[str, Any]


def top(
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also show jobs that have finished.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print once, and exit.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="json: once, for programs.")] = Output.TEXT,
    brain: Url = "",
    token_file: TokenFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show jobs and their speeds, until Ctrl-C; once where the output is no terminal.

    With --brain: the jobs of all namespaces that Brain knows, with owners and fulfilment; --all shows
    deleted ones, too.

    Example: [bold]elasticjob top -A --once[/]; [bold]elasticjob top --brain http://127.0.0.1:8090[/]
    """
    screen = console()
    once = once or not screen.is_terminal
    if brain:
        _of_brain(screen, brain, token_file, everything, once, output)
    else:
        client = options.client(namespace, kubeconfig, context)
        options.run(_of_cluster(screen, client, everywhere, everything, once, output))


def _of_brain(
    screen: Console, brain: str, token_file: Any, everything: bool, once: bool, output: Output
) -> None:
    from rich.live import Live

    path = "/v1/jobs" if everything else "/v1/jobs?running"

    def asked() -> list[Status]:
        return list(ask_brain(brain, token_file, path)["jobs"])

    def seen() -> Table:
        return fitting(asked(), datetime.now(UTC), screen)

    if output is Output.JSON:
        hand_over_json("JobList", {"jobs": asked()})
        return
    if once:
        screen.print(seen())
        return
    with Live(seen(), console=screen, auto_refresh=False) as live:
        while True:
            time.sleep(EVERY)
            live.update(seen(), refresh=True)


async def _of_cluster(
    screen: Console, connection: Client, everywhere: bool, everything: bool, once: bool, output: Output
) -> None:
    from rich.live import Live

    async with connection as client:
        if once or output is Output.JSON:
            found = await client.manifests(all_namespaces=everywhere)
            if output is Output.JSON:
                hand_over_json("JobList", {"jobs": _chosen(found, everything)})
                return
            screen.print(_show(found, screen, everywhere, everything))
            return
        with Live(console=screen, auto_refresh=False) as live:
            async with aclosing(client.follow_all(all_namespaces=everywhere)) as states:
                async for found in states:
                    live.update(_show(found, screen, everywhere, everything), refresh=True)


def _chosen(jobs: Iterable[Manifest], everything: bool) -> list[Status]:
    known = [in_brains_words(job) for job in jobs]
    return [job for job in known if everything or job["phase"] not in ("Succeeded", "Failed")]


def _show(jobs: Iterable[Manifest], screen: Console, everywhere: bool, everything: bool) -> Table:
    columns = (
        OF_CLUSTER if everywhere else {name: OF_CLUSTER[name] for name in OF_CLUSTER if name != "NAMESPACE"}
    )
    return fitting(_chosen(jobs, everything), datetime.now(UTC), screen, columns)


def in_brains_words(job: Manifest) -> Status:
    """Return a job of the API server in the words that Brain uses for its own."""
    status, about = job.get("status") or {}, job["metadata"]
    return {
        "namespace": about["namespace"],
        "name": about["name"],
        "phase": status.get("phase", ""),
        "workers": status.get("workers", ""),
        "restarts": status.get("restarts", 0),
        "began": about["creationTimestamp"],
        "status": status.get("training") or {},
    }


def fitting(jobs: Sequence[Status], now: datetime, console: Console, columns: Columns | None = None) -> Table:
    """Return the jobs as a table that a console shows whole, if leaving out some columns makes it fit."""
    from rich.measure import Measurement

    for count in range(len(DISPENSABLE) + 1):
        made = table(jobs, now, without=DISPENSABLE[:count], columns=columns or COLUMNS)
        if Measurement.get(console, console.options.update(max_width=WIDE), made).maximum <= console.width:
            break
    return made


def table(
    jobs: Iterable[Status], now: datetime, without: Sequence[str] = (), columns: Columns | None = None
) -> Table:
    """Return the jobs as a table."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, header_style="bold", pad_edge=False)
    shown = {name: cell for name, cell in (columns or COLUMNS).items() if name not in without}
    for name in (*shown, "AGE"):
        made.add_column(name, no_wrap=True)
    for job in jobs:
        cells = [*(cell(job, job["status"]) for cell in shown.values()), age(_began(job), now)]
        made.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in cells))
    return made


def _began(job: Status) -> datetime:
    return datetime.fromisoformat(job["began"])


def share(value: float | None) -> str:
    """Return a share as people read it."""
    return "–" if value is None else f"{value:.0%}"


def number(value: float | None) -> str:
    """Return a number as people read it; – for none and 0."""
    return f"{value:.1f}" if value else "–"


Columns = Mapping[str, Callable[[Status, Status], str]]
DISPENSABLE = ("MODE", "OWNER", "FULFILMENT", "EPOCH", "RESTARTS", "NAMESPACE")
"""Columns that a narrow terminal does not show, the first of them first."""
COLUMNS: Final[Columns] = {
    "NAMESPACE": lambda job, status: str(job["namespace"]),
    "NAME": lambda job, status: str(job["name"]),
    "OWNER": lambda job, status: str(job["owner"]),
    "PHASE": lambda job, status: str(job["phase"]),
    "MODE": lambda job, status: str(job["mode"]),
    "WORLD": lambda job, status: str(status.get("worldSize", "–")),
    "FULFILMENT": lambda job, status: share(status.get("fulfilment")),
    "STEPS/S": lambda job, status: number(status.get("stepsPerSecond")),
    "GOODPUT": lambda job, status: share(status.get("goodput")),
}
"""What each column shows of a job that Brain knows, and of its status."""
OF_CLUSTER: Final[Columns] = {
    **{name: COLUMNS[name] for name in ("NAMESPACE", "NAME", "PHASE")},
    "WORKERS": lambda job, status: str(job["workers"] or "–"),
    "WORLD": COLUMNS["WORLD"],
    "STEP": lambda job, status: str(status.get("step", "–")),
    "EPOCH": lambda job, status: number(status.get("epoch")),
    "DONE": lambda job, status: share(status.get("progress")),
    "STEPS/S": COLUMNS["STEPS/S"],
    "GOODPUT": COLUMNS["GOODPUT"],
    "RESTARTS": lambda job, status: str(job["restarts"]),
}
"""The same of a job of the API server."""

"""`elasticjob logs`: the logs of all nodes of a job in one stream, each line with its node."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elasticjob.api.escapes import as_line, as_log
from elasticjob.api.logs import Entry, Level, for_people, for_programs
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Name, Namespace
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import Output, hand_over, say

if TYPE_CHECKING:
    from elasticjob.client import Client
    from elasticjob.client.logs import End, Line, Source
    from elasticjob.client.understood import Filter

COLOURS: Final = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_cyan",
    "bright_green",
    "bright_magenta",
)


def logs(
    job: Name,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these nodes: a role such as worker, or one node such as worker-1 or master."
        ),
    ] = None,
    namespace: Namespace = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has finished, through relaunches.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Begin with so many last lines of each node.")
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Show the container before the last restart in its pod.")
    ] = False,
    level: Annotated[
        Level | None,
        typer.Option(help="Only lines of this level or worse; a script's are info."),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Only lines of the worker of this rank, and of its agent.")
    ] = None,
    since: Annotated[
        str, typer.Option(help="Only later lines: 90s, 10m, 2h, or a time as 2026-11-30T12:00:00Z.")
    ] = "",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="The output format; json: one object for each line.")
    ] = Output.TEXT,
    prefix: Annotated[bool, typer.Option(help="Begin each line with its node.")] = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the logs of all nodes of a job as one stream, in the order of their timestamps.

    A node's log goes on in the pod that replaces it: worker-0.1 is the first replacement of worker-0. The
    master's log is shown where it is asked for by name. On a terminal programs keep their colours; other
    escape sequences are written out.

    Example: [bold]elasticjob logs digits -f --tail 20[/], [bold]elasticjob logs digits --rank 3 --since 1h[/]
    """
    if follow and previous:
        raise Failure(
            "--follow and --previous exclude each other", next_step="leave one out", code=Exit.USAGE
        )
    from elasticjob.client.understood import Filter

    only = Filter(level or "", rank, moment("--since", since, datetime.now(UTC)) if since else None)
    connection = options.client(namespace, kubeconfig, context)
    printing = Printing(prefix=prefix, json=output is Output.JSON)
    shown = (
        _follow(connection, job, nodes or (), tail, only, printing)
        if follow
        else _show(connection, job, nodes or (), tail, previous, only, printing)
    )
    try:
        options.run(shown)
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()


def moment(flag: str, text: str, now: datetime) -> datetime:
    """Return a time that is given as a duration before now, or as RFC 3339 has it. Raises Failure."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except ValueError:
        pass
    try:
        return now - timedelta(seconds=options.seconds(text) or 0)
    except (Failure, OverflowError):
        raise Failure(
            f"{flag} {text} is no time",
            next_step="write 90s, 10m, 2h or 2026-11-30T12:00:00Z",
            code=Exit.USAGE,
        ) from None


class Printing:
    """Prints lines with their nodes: in colours on a terminal, and ends of nodes on stderr."""

    def __init__(self, *, prefix: bool, json: bool = False) -> None:
        from rich.console import Console

        self._prefix, self._json = prefix, json
        self._console = Console(highlight=False, soft_wrap=True)
        self._labels: dict[str, str] = {}
        self._width = 0

    def line(self, line: Line) -> None:
        """Print one line."""
        if self._json:
            hand_over(for_programs(as_entry(line)))
            return
        if not self._prefix:
            self._print(line)
            return
        label = line.source.label
        self._width = max(self._width, len(label))
        padded = f"{label:<{self._width}} |"
        if self._console.is_terminal and not self._console.no_color:
            from rich.text import Text

            padded = self._ansi(Text(padded, style=self._colour(line.source)))
        self._print(line, before=f"{padded} ")

    def _print(self, line: Line, before: str = "") -> None:
        """Print what a program says: as it is for other programs, and for people without its commands."""
        words = for_people(line.entry) if line.entry and line.entry.logger else line.text
        typer.echo(before + (as_log(words) if self._console.is_terminal else words))

    def end(self, ended: End) -> None:
        """Say on stderr how a node ended."""
        say(as_line(f"{ended.source.label}: {ended.sentence}"), err=True)

    def _colour(self, source: Source) -> str:
        node = f"{source.role}-{source.index}"
        return self._labels.setdefault(node, COLOURS[len(self._labels) % len(COLOURS)])

    def _ansi(self, text: object) -> str:
        with self._console.capture() as captured:
            self._console.print(text, end="")
        return captured.get()


def as_entry(line: Line) -> Entry:
    """Return a line of a log with its pod; our own words about a log are a warning."""
    entry = line.entry or Entry(datetime.fromtimestamp(line.at / 1e9, UTC), "warning", line.text)
    return replace(entry, more={"pod": line.source.pod, **entry.more})


async def _follow(
    connection: Client, job: str, nodes: Sequence[str], tail: int | None, only: Filter, printing: Printing
) -> None:
    from elasticjob.cli.jobs import following

    async with connection as client:
        await following.show_lines(client.follow_logs(job, *nodes, tail=tail, only=only), printing)


async def _show(
    connection: Client,
    job: str,
    nodes: Sequence[str],
    tail: int | None,
    previous: bool,
    only: Filter,
    printing: Printing,
) -> None:
    async with connection as client:
        found = await client.logs(job, *nodes, tail=tail, previous=previous, only=only)
        for line in found:
            printing.line(line)
        if not found and only:
            say("no line is as the flags ask", err=True)
        elif not found:
            await _say_why(client, job)


async def _say_why(client: Client, job: str) -> None:
    """Say on stderr why there is no line yet."""
    from elasticjob.kube.objects.conditions import find

    found = await client.get(job)
    running = find(found.status.conditions, "Running")
    why = f": {running.message}" if running and running.message else ""
    say(as_line(f"no line yet; {job} is {found.status.phase or 'new'}{why}"), err=True)

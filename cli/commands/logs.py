"""`elasticjob logs`: the logs of all nodes of a job in one stream, each line with its node."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs.options import Name, Namespace
from elasticjob.cli.options import Context, Kubeconfig

if TYPE_CHECKING:
    from elasticjob.client.logs import Ended, Line, Source, Wanted
    from elasticjob.kube.client.client import Client
    from elasticjob.kube.objects.kinds import Key

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
    prefix: Annotated[bool, typer.Option(help="Begin each line with its node.")] = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show the logs of all nodes of a job as one stream, in the order of their timestamps.

    A node's log goes on in the pod that replaces it: worker-0.1 is the first replacement of worker-0. The
    master's log is shown where it is asked for by name.

    Example: [bold]elasticjob logs digits -f --tail 20[/], [bold]elasticjob logs digits worker-1 master[/]
    """
    from elasticjob.client.logs import Wanted

    if follow and previous:
        raise Failure(
            "--follow and --previous exclude each other", next_step="leave one out", code=Exit.USAGE
        )
    wanted = Wanted(tuple(nodes or ()), tail, previous)
    printing = Printing(prefix=prefix)
    try:
        asyncio.run(_shown(job, namespace, wanted, printing, kubeconfig, context, follow=follow))
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()


class Printing:
    """Prints lines with their nodes: in colours on a terminal, and ends of nodes on stderr."""

    def __init__(self, *, prefix: bool) -> None:
        from rich.console import Console

        self._prefix = prefix
        self._console = Console(highlight=False, soft_wrap=True)
        self._labels: dict[str, str] = {}
        self._width = 0

    def line(self, line: Line) -> None:
        """Print one line."""
        if not self._prefix:
            print(line.text)
            return
        label = line.source.label
        self._width = max(self._width, len(label))
        padded = f"{label:<{self._width}} |"
        if self._console.is_terminal and not self._console.no_color:
            from rich.text import Text

            padded = self._ansi(Text(padded, style=self._colour(line.source)))
        print(padded, line.text)

    def end(self, ended: Ended) -> None:
        """Say on stderr how a node ended."""
        print(f"{ended.source.label}: {ended.sentence}", file=sys.stderr)

    def _colour(self, source: Source) -> str:
        node = f"{source.role}-{source.index}"
        return self._labels.setdefault(node, COLOURS[len(self._labels) % len(COLOURS)])

    def _ansi(self, text: object) -> str:
        with self._console.capture() as captured:
            self._console.print(text, end="")
        return captured.get()


async def _shown(
    job: str,
    namespace: str,
    wanted: Wanted,
    printing: Printing,
    kubeconfig: Path | None,
    context: str | None,
    *,
    follow: bool,
) -> None:
    from elasticjob.client import logs as of
    from elasticjob.client.client import key_of
    from elasticjob.kube.client import config
    from elasticjob.kube.client.client import Client

    loaded = await config.load(kubeconfig, context)
    async with Client(loaded) as client:
        key = key_of(namespace or loaded.namespace or "default", job)
        if not follow:
            found = await of.lines(client, key, wanted)
            for line in found:
                printing.line(line)
            if not found:
                await _say_why(client, key)
            return
        async with aclosing(of.follow(client, key, wanted)) as lines:
            async for each in lines:
                if isinstance(each, of.Line):
                    printing.line(each)
                    sys.stdout.flush()
                else:
                    printing.end(each)


async def _say_why(client: Client, key: Key) -> None:
    """Say on stderr why there is no line yet."""
    from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
    from elasticjob.kube.objects.conditions import find

    found = await client.get(ELASTICJOB, key.name, key.namespace)
    running = find(found.status.conditions, "Running")
    why = f": {running.message}" if running and running.message else ""
    print(f"no line yet; {key.name} is {found.status.phase or 'new'}{why}", file=sys.stderr)

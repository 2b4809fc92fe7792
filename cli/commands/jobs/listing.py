"""`elasticjob list` and `elasticjob get`: jobs as a table, as YAML or JSON, and as they change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import (
    Everywhere,
    Format,
    Formatted,
    IgnoreNotFound,
    Names,
    Namespace,
    Selector,
    Watch,
)
from elasticjob.cli.jobs.several import Several
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import hand_over, say

if TYPE_CHECKING:
    from elasticjob.client import Client
    from elasticjob.kube.objects.kinds import Manifest


def get(
    names: Names = None,
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    selector: Selector = "",
    output: Formatted = Format.TABLE,
    watch: Watch = False,
    ignore_not_found: IgnoreNotFound = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Show jobs: those named, or all of a namespace. `list` and `get` are the same command.

    Example: [bold]elasticjob list -A -o wide[/]; [bold]elasticjob get digits -o yaml[/];
    [bold]elasticjob list --watch[/] prints each change.
    """
    connection = options.client(namespace, kubeconfig, context)
    if names and everywhere:
        step = "give a namespace by -n, or leave the names out"
        raise Failure("--all-namespaces does not go with names", next_step=step, code=Exit.USAGE)
    several = Several(names, selector, ignore_not_found=ignore_not_found) if names else None
    return options.run(_get(connection, several, everywhere, selector, output, watch))


async def _get(
    connection: Client, several: Several | None, everywhere: bool, labels: str, format: Format, watch: bool
) -> Exit:
    from elasticjob.cli.jobs.table import print_jobs

    async with connection as client:
        if several:
            found = []
            for name in several.names:
                with several.trying(name):
                    found.append(await client.manifest(name))
            if found and watch:
                await _watch(_of(client, several.left), format, False)
            elif found:
                print_jobs(found, format, single=len(several.names) == 1)
            return several.code("are shown")
        if watch:
            await _watch(client.follow_all(all_namespaces=everywhere, labels=labels), format, everywhere)
            return Exit.DONE
        found = await client.manifests(all_namespaces=everywhere, labels=labels)
        if found or format not in (Format.TABLE, Format.WIDE):
            print_jobs(found, format, everywhere=everywhere)
        else:
            where = "any namespace" if everywhere else f"namespace {client.namespace()}"
            say(f"no jobs in {where}", err=True)
    return Exit.DONE


async def _of(client: Client, names: Sequence[str]) -> AsyncIterator[list[Manifest]]:
    async with aclosing(client.follow_all()) as states:
        async for jobs in states:
            yield [job for job in jobs if job["metadata"]["name"] in names]


async def _watch(states: AsyncIterator[list[Manifest]], format: Format, everywhere: bool) -> None:
    """Print each job when it has changed, as `kubectl get --watch` does."""
    from elasticjob.cli.jobs.table import chosen, dump, header, row

    columns = chosen(format is Format.WIDE)
    table = format in (Format.TABLE, Format.WIDE)
    heads = header(columns, everywhere)
    widths = [max(len(head), 10) for head in heads]
    shown: dict[str, object] = {}
    if table:
        say(_line(heads, widths))
    async for jobs in states:
        for job in jobs:
            about = job["metadata"]
            cells = row(job, columns, datetime.now(UTC), everywhere)
            new = tuple(cells[:-1]) if table else about["resourceVersion"]
            if shown.get(about["uid"]) == new:
                continue
            shown[about["uid"]] = new
            match format:
                case Format.NAME:
                    say(f"elasticjob.elastic.iml.github.io/{about['name']}")
                case Format.YAML:
                    hand_over(f"---\n{dump(job, format)}", nl=False)
                case Format.JSON:
                    hand_over(dump(job, format), nl=False)
                case _:
                    say(_line(cells, widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "   ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

"""`elasticjob list` and `elasticjob get`: jobs as a table, as YAML or JSON, and as they change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Everywhere, Format, Formatted, Names, Namespace, Watch
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import hand_over, say

if TYPE_CHECKING:
    from elasticjob.client import Client
    from elasticjob.kube.objects.kinds import Manifest


def list_(
    namespace: Namespace = "",
    everywhere: Everywhere = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only jobs with these labels: team=vision,stage!=test.")
    ] = "",
    output: Formatted = Format.TABLE,
    watch: Watch = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List the jobs of a namespace.

    Example: [bold]elasticjob list -A -o wide[/]; [bold]elasticjob list --watch[/] prints each change.
    """
    options.run(_list(options.client(namespace, kubeconfig, context), everywhere, selector, output, watch))


async def _list(connection: Client, everywhere: bool, labels: str, format: Format, watch: bool) -> None:
    from elasticjob.cli.jobs.table import print_jobs

    async with connection as client:
        if watch:
            await _watch(client.follow_all(all_namespaces=everywhere, labels=labels), format, everywhere)
            return
        found = await client.manifests(all_namespaces=everywhere, labels=labels)
        if not found and format in (Format.TABLE, Format.WIDE):
            where = "any namespace" if everywhere else f"namespace {client.namespace()}"
            say(f"no jobs in {where}", err=True)
            return
        print_jobs(found, format, everywhere=everywhere)


def get(
    names: Names,
    namespace: Namespace = "",
    output: Formatted = Format.TABLE,
    watch: Watch = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show jobs by name.

    Example: [bold]elasticjob get digits -o yaml[/]
    """
    options.run(_get(options.client(namespace, kubeconfig, context), names, output, watch))


async def _get(connection: Client, names: Sequence[str], format: Format, watch: bool) -> None:
    from elasticjob.cli.jobs.table import print_jobs

    async with connection as client:
        found = [await client.manifest(name) for name in names]
        if watch:
            await _watch(_of(client, names), format, False)
        else:
            print_jobs(found, format, single=len(found) == 1)


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

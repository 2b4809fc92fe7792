"""`elasticjob doctor`: what is wrong with the cluster or with one job, in sentences, and what mends it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elasticjob.api.escapes import as_line
from elasticjob.cli.errors import Exit
from elasticjob.cli.jobs import bundling, options
from elasticjob.cli.jobs.completion import jobs
from elasticjob.cli.jobs.options import Namespace
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import Output, hand_over_json

if TYPE_CHECKING:
    from elasticjob.api.troubles.trouble import Trouble
    from elasticjob.client import Client

MARKS: Final = {
    "wrong": ("✗", "red"),
    "doubtful": ("!", "yellow"),
    "unknown": ("?", "dim"),
    "over": ("·", "dim"),
    "well": ("✓", "green"),
}


def doctor(
    job: Annotated[
        str | None,
        typer.Argument(help="The name of a job. Default: the whole cluster.", autocompletion=jobs),
    ] = None,
    namespace: Namespace = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="The output format.")] = Output.TEXT,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write all that is known of the job into this .tgz, without secrets, to send it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --bundle.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Say what is wrong with the cluster, or with one job, and which command comes next.

    Nothing is changed. The exit code is 0 where nothing is wrong, and 1 where a person must act (✗). What did
    not answer within 3 seconds, or may not be read, has a line of its own (?).

    Example: [bold]elasticjob doctor[/], [bold]elasticjob doctor digits -n team --bundle digits.tgz[/]
    """
    connect = partial(options.client, namespace, kubeconfig, context)
    if bundle is not None:
        return bundling.bundle(job, bundle, force, connect, _examine)
    found = options.run(_examine(connect(), job))
    now = datetime.now(UTC)
    if output is Output.JSON:
        hand_over_json("DoctorReport", {"troubles": [_as_json(each) for each in found]})
    else:
        _show(found, now)
    return Exit.FAILED if any(each.grade == "wrong" for each in found) else Exit.DONE


async def _examine(connection: Client, job: str | None) -> tuple[Trouble, ...]:
    import aiohttp

    from elasticjob.api.troubles import cluster
    from elasticjob.api.troubles import job as of_job
    from elasticjob.cli.doctor import observe
    from elasticjob.client.client import key_of
    from elasticjob.client.errors import about
    from elasticjob.page.masters import Masters

    async with connection as client:
        namespace = client.namespace()
        if job is not None:
            key = key_of(namespace, job)
            async with aiohttp.ClientSession() as session:
                with about(f"ElasticJob {key}"):
                    seen = await observe.one_job(client.kube, key, Masters(client.kube, session))
            return of_job.examine(seen, datetime.now(UTC))
        from elasticjob.api.crds import manifests

        with about("the cluster"):
            found = await observe.cluster(client.kube, namespace, manifests())
        return cluster.examine(found, datetime.now(UTC))


def _as_json(trouble: Trouble) -> dict[str, object]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(trouble).items()
    }


def _show(found: tuple[Trouble, ...], now: datetime) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for each in found:
        mark, colour = MARKS[each.grade]
        console.print(Text.assemble((mark, colour), " ", as_line(each.line(now))), soft_wrap=True)
        if each.act and each.grade != "over":
            console.print(Text.assemble("    → ", as_line(each.act)), soft_wrap=True)
        for command in each.commands if each.grade != "over" else ():
            console.print(Text.assemble("    $ ", (as_line(command), "bold")), soft_wrap=True)

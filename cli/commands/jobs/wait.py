"""`elasticjob wait`: return when something is true of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.cli.errors import Exit
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.completion import goals
from elasticjob.cli.jobs.options import Names, Namespace, Selector, Timeout
from elasticjob.cli.jobs.several import Several
from elasticjob.cli.options import Context, Kubeconfig

if TYPE_CHECKING:
    from elasticjob.client import Client


def wait(
    names: Names = None,
    until: Annotated[
        str,
        typer.Option(
            "--for",
            help="complete, running, training, suspended, failed, ended, deleted, condition=TYPE, "
            "phase=PHASE, or jsonpath={.status.training.worldSize}=3.",
            autocompletion=goals,
        ),
    ] = "complete",
    selector: Selector = "",
    timeout: Timeout = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Wait until something is true of jobs. Exit code 1: a job ended otherwise; 5: not in time.

    Example: [bold]elasticjob wait digits --for running --timeout 5m[/]
    """
    several, seconds = Several(names, selector), options.seconds(timeout)
    return options.run(_wait(options.client(namespace, kubeconfig, context), several, until, seconds))


async def _wait(connection: Client, several: Several, until: str, timeout: float | None) -> Exit:
    from elasticjob.client.goals import goal

    goal(until)  # before the cluster is asked
    async with connection as client:
        if not await several.find(client):
            return Exit.NOT_FOUND
        await several.wait(client, (until,), timeout, f": {until}")
    return several.code(f"came to be {until}")

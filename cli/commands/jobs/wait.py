"""`elasticjob wait`: return when something is true of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.completion import goals
from elasticjob.cli.jobs.options import Name, Namespace, Timeout
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.client import Client


def wait(
    name: Name,
    until: Annotated[
        str,
        typer.Option(
            "--for",
            help="complete, running, training, suspended, failed, ended, deleted, condition=TYPE, "
            "phase=PHASE, or jsonpath={.status.training.worldSize}=3.",
            autocompletion=goals,
        ),
    ] = "complete",
    timeout: Timeout = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Wait until something is true of a job. Exit code 1: the job ended otherwise; 5: not in time.

    Example: [bold]elasticjob wait digits --for running --timeout 5m[/]
    """
    seconds = options.seconds(timeout)
    options.run(_wait(options.client(namespace, kubeconfig, context), name, until, seconds))


async def _wait(connection: Client, name: str, until: str, timeout: float | None) -> None:
    async with connection as client:
        await client.wait(name, until, timeout=timeout)
    say(f"{name}: {until}")

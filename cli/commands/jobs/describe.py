"""`elasticjob describe`: a job with its conditions, plans, pods and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Names, Namespace
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.client import Client


def describe(
    names: Names, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Show what a job consists of: training, roles, conditions, ScalePlans, pods, events.

    Example: [bold]elasticjob describe digits -n team[/]
    """
    options.run(_describe(options.client(namespace, kubeconfig, context), names))


async def _describe(connection: Client, names: list[str]) -> None:
    async with connection as client:
        for number, name in enumerate(names):
            say(("\n" if number else "") + (await client.describe(name)).text)

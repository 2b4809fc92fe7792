"""`elasticjob describe`: a job with its conditions, plans, pods and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticjob.cli.errors import Exit
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Names, Namespace, Selector
from elasticjob.cli.jobs.several import Several
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.client import Client


def describe(
    names: Names = None,
    namespace: Namespace = "",
    selector: Selector = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Show what a job consists of: training, roles, conditions, ScalePlans, pods, events.

    Example: [bold]elasticjob describe digits -n team[/]
    """
    several = Several(names, selector)
    return options.run(_describe(options.client(namespace, kubeconfig, context), several))


async def _describe(connection: Client, several: Several) -> Exit:
    async with connection as client:
        for number, name in enumerate(await several.find(client)):
            with several.trying(name):
                text = (await client.describe(name)).text
                say(f"\n{text}" if number else text)
    return several.code("are described")

"""`elasticjob scale`: the number of nodes of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Name, Namespace, Timeout, Wait
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.client import Client


def scale(
    name: Name,
    sizes: Annotated[
        list[str],
        typer.Argument(
            help="The number of workers, or ROLE=NUMBER of one or more roles.", show_default=False
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why, as a sentence that the ScalePlan keeps.")] = "",
    wait: Wait = False,
    timeout: Timeout = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Change the number of nodes of a running job.

    Workers are scaled as with kubectl scale; other roles, and several at once, by a manual ScalePlan.

    Example: [bold]elasticjob scale digits 3 --wait[/]; [bold]elasticjob scale ads worker=4 ps=2[/]
    """
    wanted = dict(size(text) for text in sizes)
    if len(wanted) != len(sizes):
        raise Failure("a role is named twice", next_step="name each role once", code=Exit.USAGE)
    seconds = options.seconds(timeout)
    options.run(_scale(options.client(namespace, kubeconfig, context), name, wanted, reason, wait, seconds))


def size(text: str) -> tuple[str, int]:
    """Return role and number of one argument. Raises Failure."""
    role, _, number = text.rpartition("=")
    if not number.isdecimal():
        raise Failure(f"{text!r} is no size", next_step="write 3, or ps=2", code=Exit.USAGE)
    return role or "worker", int(number)


async def _scale(
    connection: Client, name: str, wanted: dict[str, int], reason: str, wait: bool, timeout: float | None
) -> None:
    async with connection as client:
        await client.scale(name, wanted, reason=reason)
        said = ", ".join(f"{role} {count}" for role, count in wanted.items())
        if wait:
            for role, count in wanted.items():
                goal = f"jsonpath={{.status.replicaStatuses.{role}.active}}={count}"
                await client.wait(name, goal, timeout=timeout)
            say(f"{name} has {said}")
        else:
            say(f"{name} is scaled to {said}; elasticjob explain {name} shows what becomes of it")

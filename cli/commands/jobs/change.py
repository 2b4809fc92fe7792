"""`elasticjob suspend`, `resume` and `delete`: jobs that are stopped, started again, and removed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.api.v1alpha1.elasticjob import FINISHED
from elasticjob.api.v1alpha1.keeping import loss
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Names, Namespace, Timeout, Wait
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.api.v1alpha1.elasticjob import ElasticJob
    from elasticjob.client import Client


def suspend(
    names: Names,
    namespace: Namespace = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Wait = False,
    timeout: Timeout = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Stop the pods of jobs; `resume` goes on from their newest checkpoints.

    On a terminal it asks first where no checkpoint of a job is known, since such a job begins again.

    Example: [bold]elasticjob suspend digits --wait[/]
    """
    options.run(
        _suspend(options.client(namespace, kubeconfig, context), names, yes, wait, options.seconds(timeout))
    )


async def _suspend(
    connection: Client, names: list[str], yes: bool, wait: bool, timeout: float | None
) -> None:
    async with connection as client:
        found = [await client.get(name) for name in names]
        _expect_to_go_on(found, "suspended")
        lost = [(name, why) for name, job in zip(names, found, strict=True) if (why := loss(job))]
        for name, why in lost:
            say(f"{name}: {why}", err=True)
        if lost and not yes and sys.stdin.isatty() and not typer.confirm(f"suspend {', '.join(names)}?"):
            raise Failure("nothing was suspended", code=Exit.FAILED)
        for name in names:
            await client.suspend(name)
            if wait:
                await client.wait(name, "suspended", timeout=timeout)
            say(f"{name} is suspended; elasticjob resume {name} starts it again")


def _expect_to_go_on(jobs: list[ElasticJob], what: str) -> None:
    """Raise Failure, before anything is done, where a job has ended: nothing makes it run again."""
    for job in jobs:
        if job.status.phase in FINISHED:
            message = f"{job.metadata.name} has ended ({job.status.phase}), and nothing was {what}"
            raise Failure(message, next_step="delete it and create it again to have it run again")


def resume(
    names: Names,
    namespace: Namespace = "",
    wait: Wait = False,
    timeout: Timeout = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Start suspended jobs again, from their newest checkpoints, if they have some.

    Example: [bold]elasticjob resume digits[/]
    """
    options.run(
        _resume(options.client(namespace, kubeconfig, context), names, wait, options.seconds(timeout))
    )


async def _resume(connection: Client, names: list[str], wait: bool, timeout: float | None) -> None:
    async with connection as client:
        _expect_to_go_on([await client.get(name) for name in names], "resumed")
        for name in names:
            await client.resume(name)
            if wait:
                await client.wait(name, "running", timeout=timeout)
            say(f"{name} is resumed")


def delete(
    names: Names,
    namespace: Namespace = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Wait = False,
    timeout: Timeout = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Delete jobs with their pods, ScalePlans and code; claims for checkpoints stay. Asks on a terminal.

    Example: [bold]elasticjob delete digits -y[/]
    """
    options.run(
        _delete(options.client(namespace, kubeconfig, context), names, yes, wait, options.seconds(timeout))
    )


async def _delete(connection: Client, names: list[str], yes: bool, wait: bool, timeout: float | None) -> None:
    async with connection as client:
        found = [await client.get(name) for name in names]
        what = ", ".join(f"{job.metadata.name} ({job.status.phase or 'new'})" for job in found)
        if not yes and sys.stdin.isatty() and not typer.confirm(f"delete {what}?"):
            raise Failure("nothing was deleted", code=Exit.FAILED)
        for name in names:
            await client.delete(name)
            if wait:
                await client.wait(name, "deleted", timeout=timeout)
            say(f"{name} is deleted")

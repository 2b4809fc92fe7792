"""`elasticjob scale`, `suspend`, `resume` and `delete`: changes of one job or several."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elasticjob.api.v1alpha1.keeping import loss
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Dry, DryRun, IgnoreNotFound, Names, Namespace, Selector, Timeout, Wait
from elasticjob.cli.jobs.several import Several
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.api.v1alpha1.elasticjob import ElasticJob
    from elasticjob.client import Client

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SIZE: Final = re.compile(r"(?:([^=]+)=)?(\d+)")


@dataclass(frozen=True)
class Change:
    """A change of each job: `goals` are what is waited for, `question` what a person is asked first."""

    act: Callable[[Client, str], Awaitable[object]]
    done: str
    goals: tuple[str, ...]
    hint: str = ""
    question: Callable[[Mapping[str, ElasticJob]], str] = lambda _: ""


def suspend(
    names: Names = None,
    namespace: Namespace = "",
    selector: Selector = "",
    yes: Yes = False,
    dry_run: DryRun = Dry.NONE,
    wait: Wait = False,
    timeout: Timeout = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Stop the pods of jobs; `resume` goes on from their newest checkpoints.

    On a terminal it asks first where no checkpoint of a job is known, since such a job begins again.

    Example: [bold]elasticjob suspend digits --wait[/]
    """
    hint = "elasticjob resume {name} starts it again"
    change = Change(lambda client, name: client.suspend(name), "suspended", ("suspended",), hint, _losses)
    connection = options.client(namespace, kubeconfig, context, dry_run)
    return options.run(_each(connection, Several(names, selector), change, dry_run, yes, wait, timeout))


def resume(
    names: Names = None,
    namespace: Namespace = "",
    selector: Selector = "",
    dry_run: DryRun = Dry.NONE,
    wait: Wait = False,
    timeout: Timeout = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Start suspended jobs again, from their newest checkpoints, if they have some.

    Example: [bold]elasticjob resume digits[/]
    """
    change = Change(lambda client, name: client.resume(name), "resumed", ("running",))
    connection = options.client(namespace, kubeconfig, context, dry_run)
    return options.run(_each(connection, Several(names, selector), change, dry_run, True, wait, timeout))


def delete(
    names: Names = None,
    namespace: Namespace = "",
    selector: Selector = "",
    yes: Yes = False,
    ignore_not_found: IgnoreNotFound = False,
    dry_run: DryRun = Dry.NONE,
    wait: Wait = False,
    timeout: Timeout = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Delete jobs with their pods, ScalePlans and code; claims for checkpoints stay. Asks on a terminal.

    Example: [bold]elasticjob delete digits -y[/]; [bold]elasticjob delete -l team=vision[/]
    """
    several = Several(names, selector, ignore_not_found=ignore_not_found)
    change = Change(lambda client, name: client.delete(name), "deleted", ("deleted",), question=_phases)
    connection = options.client(namespace, kubeconfig, context, dry_run)
    return options.run(_each(connection, several, change, dry_run, yes, wait, timeout))


def scale(
    words: Annotated[
        list[str],
        typer.Argument(
            help="Names of jobs, then the number of workers, or ROLE=NUMBER of one or more roles.",
            show_default=False,
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why, as a sentence that the ScalePlan keeps.")] = "",
    selector: Selector = "",
    dry_run: DryRun = Dry.NONE,
    wait: Wait = False,
    timeout: Timeout = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Change the number of nodes of running jobs.

    Workers are scaled as with kubectl scale; other roles, and several at once, by a manual ScalePlan.

    Example: [bold]elasticjob scale digits 3 --wait[/]; [bold]elasticjob scale ads worker=4 ps=2[/]
    """
    names, wanted = names_and_sizes(words, selected=bool(selector))
    told = ", ".join(f"{role} {count}" for role, count in wanted.items())
    change = Change(
        lambda client, name: client.scale(name, wanted, reason=reason),
        f"scaled to {told}",
        tuple(f"jsonpath={{.status.replicaStatuses.{role}.active}}={n}" for role, n in wanted.items()),
        hint="elasticjob explain {name} shows what becomes of it",
    )
    connection = options.client(namespace, kubeconfig, context, dry_run)
    return options.run(_each(connection, Several(names, selector), change, dry_run, True, wait, timeout))


def names_and_sizes(words: list[str], *, selected: bool = False) -> tuple[list[str], dict[str, int]]:
    """Return names of jobs, at least one unless they are selected, and sizes by role. Raises Failure."""
    names, sizes = list(words), list[re.Match[str]]()
    while len(names) > (not selected) and (found := SIZE.fullmatch(names[-1])):
        sizes.append(found)
        names.pop()
    if not sizes:
        raise Failure(f"{words[-1]!r} is no size", next_step="write NAME 3, or NAME ps=2", code=Exit.USAGE)
    wanted = {found[1] or "worker": int(found[2]) for found in reversed(sizes)}
    if len(wanted) != len(sizes):
        raise Failure("a role is named twice", next_step="name each role once", code=Exit.USAGE)
    return names, wanted


async def _each(
    connection: Client, several: Several, change: Change, dry_run: Dry, yes: bool, wait: bool, timeout: str
) -> Exit:
    """Do something to each job that is there, and then wait for all of them, unless it is a dry run."""
    seconds, wait = options.seconds(timeout), wait and dry_run is Dry.NONE
    yes = yes or dry_run is not Dry.NONE or not sys.stdin.isatty()
    async with connection as client:
        found: dict[str, ElasticJob] = {}
        for name in await several.find(client):
            with several.trying(name):
                found[name] = await client.get(name)
        asked = change.question(found) if found else ""
        if asked and not yes and not typer.confirm(asked):
            raise Failure(f"nothing was {change.done}")
        for name in several.left:
            with several.trying(name):
                if dry_run is not Dry.CLIENT:
                    await change.act(client, name)
                if not wait:
                    hint = f"; {change.hint.format(name=name)}" * bool(change.hint and not dry_run.remark)
                    say(f"{name} is {change.done}{dry_run.remark}{hint}")
        if wait:
            await several.wait(client, change.goals, seconds, f" is {change.done}")
    return several.code(f"are {change.done}")


def _losses(jobs: Mapping[str, ElasticJob]) -> str:
    """Tell what is lost, and return a question about it."""
    lost = [(name, why) for name, job in jobs.items() if (why := loss(job))]
    for name, why in lost:
        say(f"{name}: {why}", err=True)
    return f"suspend {', '.join(jobs)}?" if lost else ""


def _phases(jobs: Mapping[str, ElasticJob]) -> str:
    what = ", ".join(f"{name} ({job.status.phase or 'new'})" for name, job in jobs.items())
    return f"delete {what}?"

"""`elasticjob explain`: why a job has its size and its state; with --brain, by which decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticjob.api.escapes import as_line
from elasticjob.cli.asking import TokenFile, Url, ask_brain, sizes
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Name, Namespace
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import Output, hand_over_json, say

if TYPE_CHECKING:
    from elasticjob.client import Client


def explain(
    job: Name,
    namespace: Namespace = "",
    brain: Url = "",
    token_file: TokenFile = None,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Also show what Brain knew at each decision.")
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="The output format.")] = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show why a job has its size and its state: conditions, ScalePlans with reasons, findings, warnings.

    With --brain: the decisions of Brain about the job, oldest first.

    Example: [bold]elasticjob explain digits -n team[/]; with Brain [bold]--brain URL --numbers[/]
    """
    if brain:
        _of_brain(job, namespace or "default", brain, token_file, numbers, output)
    else:
        options.run(_of_cluster(options.client(namespace, kubeconfig, context), job, output))


async def _of_cluster(connection: Client, job: str, output: Output) -> None:
    from elasticjob.client.explained import reasons_in_lines

    async with connection as client:
        lines = reasons_in_lines(await client.describe(job))
    if output is Output.JSON:
        hand_over_json("Explanation", {"lines": lines})
        return
    for line in lines:
        say(line)


def _of_brain(
    job: str, namespace: str, brain: str, token_file: Path | None, numbers: bool, output: Output
) -> None:
    known = ask_brain(brain, token_file, f"/v1/jobs/{namespace}/{job}")
    if output is Output.JSON:
        hand_over_json("Explanation", {"decisions": known["decisions"]})
        return
    if not known["decisions"]:
        say(f"Brain has decided nothing about {namespace}/{job} ({known['phase'] or 'new'}, {known['mode']})")
    for each in known["decisions"]:
        say(describe(each))
        if numbers:
            say(f"     {json.dumps(each['inputs'])}")


def describe(decision: dict[str, Any]) -> str:
    """Return a decision in three lines."""
    plan = f", as ScalePlan {decision['plan']} ({decision['outcome'] or 'not written yet'})"
    how = plan if decision["plan"] else ", as an answer to the master"
    return (
        f"{decision['number']:>3}  {decision['at'][:19].replace('T', ' ')}  {decision['event']}: "
        f"{decision['algorithm']}{how}\n     {sizes(decision['sizes'])}\n     {as_line(decision['reason'])}"
    )

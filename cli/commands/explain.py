"""`elasticjob explain`: which algorithm gave a job its sizes, when, why, and from which numbers."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from elasticjob.cli.asking import HERE, TokenFile, Url, asked, sizes
from elasticjob.cli.output import Output


def explain(
    job: Annotated[str, typer.Argument(help="The name of the job.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The namespace of the job.")
    ] = "default",
    brain: Url = HERE,
    token_file: TokenFile = None,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Also show the inputs of each decision.")
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="The output format.")] = Output.TEXT,
) -> None:
    """Show the decisions of Brain about a job, oldest first.

    Example: [bold]elasticjob explain digits -n team --numbers[/]
    """
    known = asked(brain, token_file, f"/v1/jobs/{namespace}/{job}")
    if output is Output.JSON:
        print(json.dumps(known["decisions"], indent=2))
        return
    if not known["decisions"]:
        print(
            f"Brain has decided nothing about {namespace}/{job} ({known['phase'] or 'new'}, {known['mode']})"
        )
    for each in known["decisions"]:
        print(told(each))
        if numbers:
            print(f"     {json.dumps(each['inputs'])}")


def told(decision: dict[str, Any]) -> str:
    """Return a decision in three lines."""
    plan = f", as ScalePlan {decision['plan']} ({decision['outcome'] or 'not written yet'})"
    how = plan if decision["plan"] else ", as an answer to the master"
    return (
        f"{decision['number']:>3}  {decision['at'][:19].replace('T', ' ')}  {decision['event']}: "
        f"{decision['algorithm']}{how}\n     {sizes(decision['sizes'])}\n     {decision['reason']}"
    )

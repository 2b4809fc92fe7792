"""`elasticjob version`: print installed versions."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from elasticjob.cli.output import Output
from elasticjob.cli.versions import versions


def version(
    output: Annotated[Output, typer.Option("--output", "-o", help="The output format.")] = Output.TEXT,
) -> None:
    """Print the version of elasticjob and of the software it runs on.

    Example: [bold]elasticjob version --output json[/]
    """
    installed = versions()
    if output is Output.JSON:
        typer.echo(json.dumps(installed, indent=2))
        return
    typer.echo(
        f"elasticjob {installed['elasticjob']} (Python {installed['python']}, {installed['platform']})"
    )

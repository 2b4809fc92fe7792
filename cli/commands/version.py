"""`elasticjob version`: print installed versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import elasticjob
from elasticjob.cli.output import Output, hand_over_json, say
from elasticjob.cli.versions import versions


def version(
    output: Annotated[Output, typer.Option("--output", "-o", help="The output format.")] = Output.TEXT,
) -> None:
    """Print the version of elasticjob and of the software it runs on.

    Example: [bold]elasticjob version --output json[/]
    """
    installed = versions()
    if output is Output.JSON:
        hand_over_json("Version", installed | {"folder": str(Path(elasticjob.__file__).parent)})
        return
    say(
        f"elasticjob {installed['elasticjob']} (commit {installed['commit'][:12]}, "
        f"Python {installed['python']}, {installed['platform']})"
    )

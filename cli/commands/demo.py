"""`elasticjob demo`: a job's whole life on this machine, told while it happens and in a report afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticjob.cli.output import Output


def demo(
    report: Annotated[
        Path, typer.Option("--report", "-r", help="Where the report goes: one HTML page.")
    ] = Path("report.html"),
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Also write the plot alone, as SVG.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster up at the end, and say how kubectl reaches it.")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Train longer or shorter than the job says.")
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="What to print at the end; json also means --plain.")
    ] = Output.TEXT,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live screen.")] = False,
) -> int:
    """Run a job on this machine: apply, train, kill, scale, suspend, resume, succeed.

    Starts a Kubernetes in this process with the operator beside it, applies examples/digits/job.yaml and
    trains a real network on real images, while a worker is killed, a pod deleted, the job scaled, suspended
    and resumed. Prints how long training stood still each time, and writes a report with the plots. Ctrl-C
    leaves nothing behind.

    Example: [bold]elasticjob demo --report run.html[/]
    """
    from elasticjob.cli.demo.run import Options, run

    return run(Options(report=report, picture=picture, keep=keep, epochs=epochs, output=output, plain=plain))

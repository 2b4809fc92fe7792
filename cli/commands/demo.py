"""`elasticjob demo`: a job's whole life on this machine, told while it happens and in a report afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticjob.cli.output import Output


def demo(
    report: Annotated[
        Path, typer.Option("--report", "-r", help="The file of the report, one HTML page.")
    ] = Path("report.html"),
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Also write the plot to this file, as SVG.")
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the cluster running at the end, and print how kubectl reaches it."),
    ] = False,
    epochs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of epochs to train: more if the acts take longer, fewer if they would go on "
            "for more than half a minute after the last act.",
        ),
    ] = 130,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="The format of the results; json implies --plain.")
    ] = Output.TEXT,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines instead of a live screen.")] = False,
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

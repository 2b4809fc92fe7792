"""`elasticjob submit`: a job from a script, which is sent with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.cli.errors import Exit
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Dry, Format, Namespace
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import hand_over, say

if TYPE_CHECKING:
    from elasticjob.client.code import Code
    from elasticjob.client.objects import JobOptions

NODES, PLACE, CODE = "Nodes", "Place and limits", "Code"


def submit(
    script: Annotated[
        Path,
        typer.Argument(help="The training script; its arguments follow it, after --.", show_default=False),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script.", show_default=False)
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            "--workers",
            help="Number of nodes, or MIN:MAX: the job learns its size.",
            rich_help_panel=NODES,
        ),
    ] = "1",
    image: Annotated[
        str,
        typer.Option(
            help="The image, with Python, elasticjob and what the script imports.",
            show_default="elasticjob/trainer of this version",
            rich_help_panel=NODES,
        ),
    ] = "",
    cpu: Annotated[
        str, typer.Option(help="Cores of each node: 2, 500m.", show_default="learnt", rich_help_panel=NODES)
    ] = "",
    memory: Annotated[
        str, typer.Option(help="Memory of each node: 4Gi.", show_default="learnt", rich_help_panel=NODES)
    ] = "",
    gpu: Annotated[
        int, typer.Option(help="GPUs of each node; each has a worker.", min=0, rich_help_panel=NODES)
    ] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="NAME=VALUE, or NAME for its value here.", rich_help_panel=NODES),
    ] = None,
    checkpoint: Annotated[
        str,
        typer.Option(
            help="CLAIM:/path for checkpoints; the script finds the path in CHECKPOINT_PATH.",
            rich_help_panel=NODES,
        ),
    ] = "",
    volume: Annotated[
        list[str] | None, typer.Option(help="More claims: data:/data.", rich_help_panel=NODES)
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="The name of the job.", show_default="the script's, made unique", rich_help_panel=PLACE
        ),
    ] = "",
    namespace: Namespace = "",
    queue: Annotated[
        str,
        typer.Option(help="Kueue's LocalQueue; with --gang volcano, Volcano's queue.", rich_help_panel=PLACE),
    ] = "",
    gang: Annotated[
        str,
        typer.Option(
            help="Place all pods or none: volcano, coscheduling, kubernetes, required or preferred.",
            rich_help_panel=PLACE,
        ),
    ] = "",
    priority_class: Annotated[
        str, typer.Option(help="PriorityClass of the pods.", rich_help_panel=PLACE)
    ] = "",
    restarts: Annotated[
        int | None,
        typer.Option(
            help="How often each node may be replaced after failures.",
            show_default="3",
            rich_help_panel=PLACE,
        ),
    ] = None,
    deadline: Annotated[
        str,
        typer.Option(
            help="How long the job may run: 90m, 12h.", show_default="without end", rich_help_panel=PLACE
        ),
    ] = "",
    ttl: Annotated[
        str,
        typer.Option(
            help="How long after its end it is deleted: 1h.", show_default="never", rich_help_panel=PLACE
        ),
    ] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="NAME=VALUE of the job.", rich_help_panel=PLACE)
    ] = None,
    suspend: Annotated[
        bool, typer.Option("--suspend", help="Create it suspended.", rich_help_panel=PLACE)
    ] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--files", help="Files beside the script, or folders; 1 MiB in all.", rich_help_panel=CODE
        ),
    ] = None,
    package: Annotated[
        list[str] | None,
        typer.Option(
            "--package", "-p", help="A package that pip installs before nodes start.", rich_help_panel=CODE
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Show what happens until the job ends; exit code 1 if it fails."),
    ] = False,
    dry_run: Annotated[
        Dry,
        typer.Option("--dry-run", help="Create nothing: print the objects (client), or the job (server)."),
    ] = Dry.NONE,
    output: Annotated[
        Format,
        typer.Option("--output", "-o", help="How: yaml, json or name; of what --dry-run prints, or created."),
    ] = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Run a training script on a cluster: makes an ElasticJob of it, and sends the script by a ConfigMap.

    Each node runs it under [bold]elasticjob run[/]. The ConfigMap is deleted with the job. What the job needs
    and the cluster lacks (claims, a priority class, a queue, quota) is told on stderr, and may come later.
    After Ctrl-C in --follow the job goes on.

    Example: [bold]elasticjob submit train.py --workers 1:4 --cpu 2 --memory 4Gi --follow -- --epochs 10[/]
    """
    from elasticjob.client.client import code_of
    from elasticjob.client.objects import IMAGE, JobOptions, meant_otherwise

    code = code_of(script, arguments=arguments or (), files=files or ())
    wanted = JobOptions(
        name=name,
        workers=workers,
        image=image or IMAGE,
        packages=tuple(package or ()),
        env=options.pairs("--env", env or (), from_here=True),
        cpu=cpu,
        memory=memory,
        gpus=gpu,
        checkpoint=checkpoint,
        volumes=tuple(volume or ()),
        queue=queue,
        gang=gang,
        priority_class=priority_class,
        restarts=restarts,
        deadline_seconds=options.whole_seconds(deadline, "--deadline"),
        ttl_seconds=options.whole_seconds(ttl, "--ttl"),
        labels=options.pairs("--label", label or ()),
        suspend=suspend,
    )
    if warning := meant_otherwise(wanted):
        say(f"warning: {warning} (--gang)", err=True)
    if dry_run is Dry.CLIENT:
        options.run(_print(code, wanted, namespace, output, kubeconfig, context))
        return Exit.DONE
    return options.run(_submit(code, wanted, namespace, output, dry_run, follow, kubeconfig, context))


async def _print(
    code: Code,
    wanted: JobOptions,
    namespace: str,
    format: Format,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    from elasticjob.cli.jobs.table import dump
    from elasticjob.client.client import letters
    from elasticjob.client.errors import Unreachable
    from elasticjob.client.objects import objects

    place = namespace
    if not place:
        try:
            async with options.client("", kubeconfig, context) as client:
                place = client.namespace()
        except Unreachable:
            place = "default"
    made = objects(code, wanted, namespace=place, unique=letters())
    match format:
        case Format.NAME:
            say(made.job["metadata"]["name"])
        case Format.JSON:
            both = {"apiVersion": "v1", "kind": "List", "items": [made.code, made.job]}
            hand_over(dump(both, format), nl=False)
        case _:
            parts = [dump(each, Format.YAML) for each in (made.code, made.job)]
            hand_over("---\n".join(parts), nl=False)


async def _submit(
    code: Code,
    wanted: JobOptions,
    namespace: str,
    format: Format,
    dry_run: Dry,
    follow: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> int:
    from elasticjob.cli.commands.logs import Printing
    from elasticjob.cli.jobs.following import follow_logs
    from elasticjob.cli.jobs.table import print_jobs

    async with options.client(namespace, kubeconfig, context, dry_run) as client:
        objects = client.prepare(code, wanted)
        for sentence in await client.missing(objects):
            say(f"warning: {sentence}", err=True)
        job = await client.create(objects)
        about = job.metadata
        place = "" if about.namespace == "default" else f" -n {about.namespace}"
        if format is Format.TABLE:
            say(f"ElasticJob {about.name} is created in namespace {about.namespace}{dry_run.remark}")
        elif dry_run is Dry.SERVER:
            made = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
            print_jobs([made], format, single=True)
        else:
            print_jobs([await client.manifest(about.name)], format, single=True)
        if not follow or dry_run is Dry.SERVER:
            if format is Format.TABLE and dry_run is Dry.NONE:
                say(f"follow it: elasticjob logs {about.name}{place} --follow")
            return Exit.DONE
        come_back = f"elasticjob logs {about.name}{place} --follow"
        return await follow_logs(client, about.name, Printing(prefix=True), come_back)

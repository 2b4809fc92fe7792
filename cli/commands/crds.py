"""`elasticjob crds`: the custom resource definitions, from the models of `elasticjob.api.v1alpha1`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elasticjob.api.sentences import amount
from elasticjob.cli.errors import Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Dry, DryRun
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import hand_over, say

if TYPE_CHECKING:
    from elasticjob.client import Client

NOTHING: Final = "no breaking change"


class Format(StrEnum):
    """The output format of a manifest."""

    YAML = "yaml"
    JSON = "json"


class Template(StrEnum):
    """How much of the pod template schema the CRDs contain."""

    FULL = "full"
    TYPED = "typed"
    OPAQUE = "opaque"


def crds(
    output: Annotated[Format, typer.Option("--output", "-o", help="The output format.")] = Format.YAML,
    template: Annotated[
        Template,
        typer.Option(
            help="Schema of pod templates. full: all fields, unknown ones are pruned; typed: all fields, "
            "unknown ones are kept; opaque: none."
        ),
    ] = Template.TYPED,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Apply them to the cluster (server-side apply) instead of printing them."
        ),
    ] = False,
    allow_breaking: Annotated[
        bool,
        typer.Option("--allow-breaking", help="Apply even if stored objects become invalid or lose fields."),
    ] = False,
    dry_run: DryRun = Dry.NONE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the CustomResourceDefinitions, or apply them.

    They are those of ElasticJob, ScalePlan, JobResource, TrainingJob, DIJob and AggregatorConfig.

    Example: [bold]elasticjob crds | kubectl apply --server-side -f -[/], or [bold]elasticjob crds --apply[/],
    which first lists the changes that affect stored objects.
    """
    # Pydantic and the schemas of pods take a quarter of a second: not for --help
    from elasticjob.api.crds import manifests
    from elasticjob.kube.crd.embedded import Detail

    written = manifests(Detail(template))
    if apply:
        connection = options.client("", kubeconfig, context, dry_run)
        options.run(_apply(connection, written, dry_run, allow_breaking=allow_breaking))
    elif output is Format.JSON:
        hand_over(json.dumps({"apiVersion": "v1", "kind": "List", "items": written}))
    else:
        import yaml

        hand_over(yaml.dump_all(written, Dumper=yaml.CSafeDumper, sort_keys=False, width=120), nl=False)


async def _apply(
    connection: Client, written: list[dict[str, object]], dry_run: Dry, *, allow_breaking: bool
) -> None:
    """List the changes in the cluster, then apply; Failure if stored objects would become invalid."""
    from elasticjob.client.errors import about
    from elasticjob.kube.crd.installing import install, upgrades

    async with connection as client:
        with about("CustomResourceDefinitions"):
            pending = await upgrades(client.kube, written)
            for upgrade in pending:
                known = amount(len(upgrade.changes), "breaking change") if upgrade.changes else NOTHING
                say(f"{upgrade.name}: {known if upgrade.exists else 'new'}")
                for change in upgrade.changes:
                    say(f"  {change.sentence()}")
            if any(upgrade.changes for upgrade in pending) and not allow_breaking:
                raise Failure(
                    "objects of this cluster may suffer from the breaking changes above; nothing was applied",
                    next_step="apply with --allow-breaking if they may",
                )
            if dry_run is not Dry.CLIENT:
                await install(client.kube, written, manager="elasticjob-install")
    say(f"{amount(len(written), 'definition')} are applied and served{dry_run.remark}")

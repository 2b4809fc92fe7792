"""`elasticjob crds`: the custom resource definitions, from the models of `elasticjob.api.v1alpha1`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How a manifest is written."""

    YAML = "yaml"
    JSON = "json"


def crds(
    output: Annotated[Format, typer.Option("--output", "-o", help="How to write them.")] = Format.YAML,
) -> None:
    """Print the custom resource definitions: ElasticJob, JobResource, ScalePlan.

    Example: [bold]elasticjob crds | kubectl apply -f -[/]
    """
    # Pydantic and the schemas of pods take a quarter of a second: not for --help
    import yaml

    from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
    from elasticjob.api.v1alpha1 import elasticjob, jobresource, scaleplan
    from elasticjob.kube.crd import crd_manifest
    from elasticjob.kube.embedded import Detail, embedded_schema

    embedded = {POD_TEMPLATE_SPEC: embedded_schema(POD_TEMPLATE_SPEC, definitions(), Detail.TYPED)}
    kinds = (elasticjob, jobresource, scaleplan)
    manifests = [crd_manifest(kind.DECLARATION, embedded) for kind in kinds]
    if output is Format.JSON:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    else:
        typer.echo(yaml.safe_dump_all(manifests, sort_keys=False, width=120), nl=False)

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

    from elasticjob.api.v1alpha1.crds import manifests

    written = manifests()
    if output is Format.JSON:
        typer.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": written}))
    else:
        typer.echo(yaml.safe_dump_all(written, sort_keys=False, width=120), nl=False)

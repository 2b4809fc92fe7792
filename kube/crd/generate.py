"""The CustomResourceDefinition of a declared kind."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob.kube.crd.declaration import refuse_unsound
from elasticjob.kube.crd.model import Column, Declaration
from elasticjob.kube.crd.schemas import Schema, UnsupportedSchema
from elasticjob.kube.crd.structural import structural
from elasticjob.kube.objects.kinds import Manifest


def crd_manifest(declaration: Declaration, embedded: Mapping[str, Schema] | None = None) -> Manifest:
    """Return the CustomResourceDefinition of a declared kind; `embedded` has the schemas of Embedded fields.

    Raises UnsupportedSchema where the model says something that a CustomResourceDefinition cannot,
    UnsoundDeclaration where the declaration does not fit it.
    """
    kind = declaration.kind
    singular = kind.name.lower()
    names = {"kind": kind.name, "listKind": f"{kind.name}List", "plural": kind.plural, "singular": singular}
    lists = {"shortNames": declaration.short_names, "categories": declaration.categories}
    metadata: Manifest = {"name": kind.resource}
    if declaration.annotations:
        metadata["annotations"] = dict(declaration.annotations)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": {**names, **{name: list(words) for name, words in lists.items() if words}},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(declaration, embedded or {})],
        },
    }


_STANDARD: Mapping[str, str] = {
    "apiVersion": "The group and version of this object's schema.",
    "kind": "The kind of this object.",
}


def _own_schema(declaration: Declaration, embedded: Mapping[str, Schema]) -> Schema:
    """The schema of the kind's model; what is wrong with it is told with the name of that model."""
    model = declaration.kind.model
    try:
        return structural(model.model_json_schema(by_alias=True), embedded)
    except UnsupportedSchema as error:
        where = f"{model.__name__}.{error.path}" if error.path else model.__name__
        raise UnsupportedSchema(where, error.advice) from None


def _version(declaration: Declaration, embedded: Mapping[str, Schema]) -> Manifest:
    schema = _own_schema(declaration, embedded)
    standard = {name: {"type": "string", "description": text} for name, text in _STANDARD.items()}
    metadata = _metadata_schema(schema["properties"].get("metadata", {}))
    schema["properties"] = {**schema["properties"], **standard, "metadata": metadata}
    refuse_unsound(declaration, schema)
    version: Manifest = {"name": declaration.kind.version, "served": True, "storage": True}
    if declaration.deprecated:
        version |= {"deprecated": True, "deprecationWarning": declaration.deprecated}
    if declaration.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in declaration.columns]
    if declaration.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in declaration.selectable]
    version["schema"] = {"openAPIV3Schema": schema}
    if subresources := _subresources(declaration, schema):
        version["subresources"] = subresources
    return version


def _metadata_schema(metadata: Schema) -> Schema:
    """The schema of metadata: what the model says of names, and nothing else."""
    return {key: metadata[key] for key in ("type", "properties") if key in metadata}


def _column(column: Column) -> Manifest:
    entry: Manifest = {"name": column.name, "type": column.type, "jsonPath": column.path}
    optional = {"description": column.description, "format": column.format, "priority": int(column.wide)}
    return entry | {key: value for key, value in optional.items() if value}


def _subresources(declaration: Declaration, schema: Schema) -> Manifest:
    found: Manifest = {"status": {}} if "status" in schema["properties"] else {}
    if (scale := declaration.scale) is not None:
        found["scale"] = {
            "specReplicasPath": scale.spec_replicas,
            "statusReplicasPath": scale.status_replicas,
            "labelSelectorPath": scale.selector,
        }
    return found

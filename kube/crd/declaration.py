"""Checks of a declaration against its own schema: names, columns, scale, selectable fields.

A column or a scale path that leads nowhere is accepted by servers, and shows as an empty column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from elasticjob.kube.crd.model import Declaration
from elasticjob.kube.crd.schemas import INT_OR_STRING, PRESERVE, Schema


class UnsoundDeclaration(ValueError):
    """A declaration says what servers refuse, or what its own schema does not have."""


def refuse_unsound(declaration: Declaration, schema: Schema) -> None:
    """Raise UnsoundDeclaration at the first thing that is wrong, with the kind's name and what to write."""
    for check in CHECKS:
        for complaint in check(declaration, schema):
            raise UnsoundDeclaration(f"{declaration.kind.name}: {complaint}")


_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION: Final = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_PROTECTED: Final = re.compile(r"(^|\.)(k8s|kubernetes)\.io$")
_APPROVED: Final = "api-approved.kubernetes.io"


def names_are_labels(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """Names are lower-case labels, and no two are the same."""
    kind = declaration.kind
    words = (kind.plural, kind.name.lower(), *declaration.short_names, *declaration.categories)
    for word in words:
        if not _LABEL.fullmatch(word):
            yield f"{word!r} is no name: write lower-case letters, digits and dashes, 63 at most"
    names = (kind.plural, kind.name.lower(), *declaration.short_names)
    yield from (
        f"the name {name!r} is given twice" for name in _twice(names) if kind.plural != kind.name.lower()
    )
    if not _VERSION.fullmatch(kind.version):
        yield f"{kind.version!r} is no version that clients can order: write v1, v1beta2 or v1alpha1"
    if "." not in kind.group:
        yield f"the group {kind.group!r} is no domain: write example.org"


def groups_of_kubernetes_are_approved(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """Groups under k8s.io belong to Kubernetes."""
    if _PROTECTED.search(declaration.kind.group) and _APPROVED not in (declaration.annotations or {}):
        yield f"the group {declaration.kind.group} belongs to Kubernetes: take a domain of yours"


_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("int32", "int64", "float", "double", "byte", "date", "date-time", "password")
_FITS: Final[Mapping[str, tuple[str, ...]]] = {
    "boolean": ("boolean",),
    "date": ("string",),
    "integer": ("integer", "number"),
    "number": ("integer", "number"),
    "string": ("string", "integer", "number", "boolean", "int-or-string", "object", "array"),
}


def columns_show_fields(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """Each column has a name of its own and shows a field of its type."""
    yield from (f"two columns are named {name}" for name in _twice([c.name for c in declaration.columns]))
    for column in declaration.columns:
        where = f"column {column.name or column.path!r}"
        if not column.name:
            yield f"{where} has no name"
        if column.type not in _COLUMN_TYPES:
            yield f"{where}: {column.type!r} is none of the types {', '.join(_COLUMN_TYPES)}"
            continue
        if column.format and column.format not in _COLUMN_FORMATS:
            yield f"{where}: {column.format!r} is none of the formats {', '.join(_COLUMN_FORMATS)}"
        yield from (
            f"{where}: {why}" for why in _misleads(column.path, schema, _FITS[column.type], arrays=True)
        )


def scale_paths_lead_to_numbers(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """The scale subresource reads and writes whole numbers, and a selector that is a text."""
    if (scale := declaration.scale) is None:
        return
    for path, roots, kinds in (
        (scale.spec_replicas, ("spec",), ("integer",)),
        (scale.status_replicas, ("status",), ("integer",)),
        (scale.selector, ("spec", "status"), ("string",)),
    ):
        root = path.split(".")[1] if path.startswith(".") else ""
        if root not in roots:
            yield f"scale: {path!r} must begin with .{' or .'.join(roots)}"
        else:
            yield from (f"scale: {why}" for why in _misleads(path, schema, kinds, arrays=False))


_MOST_SELECTABLE: Final = 8


def selectable_fields_are_scalars(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """Fields to select by are at most eight scalars of the object's own."""
    paths = declaration.selectable
    if len(set(paths)) > _MOST_SELECTABLE:
        yield f"{len(paths)} selectable fields: servers take {_MOST_SELECTABLE}; use labels for the others"
    yield from (f"the selectable field {path} is named twice" for path in _twice(paths))
    for path in paths:
        if path.startswith(".metadata"):
            yield f"selectable field {path}: of metadata, name and namespace are selectable, no others"
        else:
            kinds = ("string", "integer", "boolean")
            yield from (f"selectable field {why}" for why in _misleads(path, schema, kinds, arrays=False))


def warnings_are_one_line(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """A deprecation is a header: one line, 256 bytes."""
    text = declaration.deprecated
    if "\n" in text or len(text.encode()) > 256:
        yield "the deprecation is sent as a header: write one line of 256 bytes at most"


def metadata_restricts_names_only(declaration: Declaration, schema: Schema) -> Iterator[str]:
    """Servers check metadata themselves, but for its names."""
    properties = schema.get("properties", {}).get("metadata", {}).get("properties", {})
    if more := sorted(properties.keys() - {"name", "generateName"}):
        yield f"metadata.{more[0]} cannot be restricted by a schema, only names can: use a webhook"


Check = Callable[[Declaration, Schema], Iterator[str]]

CHECKS: Final[tuple[Check, ...]] = (
    names_are_labels,
    groups_of_kubernetes_are_approved,
    columns_show_fields,
    scale_paths_lead_to_numbers,
    selectable_fields_are_scalars,
    warnings_are_one_line,
    metadata_restricts_names_only,
)


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_](?:[\w/-]|\\.)*)   # .name, its dots escaped
      | \['(?P<key>[^']+)'\]                       # ['name']
      | \[(?P<item>\d+|\*|\?\(@\.[^)]+\))\]        # [0], [*], [?(@.type=="Ready")]
    """,
    re.VERBOSE,
)
_META: Final[Schema] = {
    "type": "object",
    "properties": {
        **{
            name: {"type": "string"}
            for name in ("name", "namespace", "generateName", "uid", "resourceVersion")
        },
        **{name: {"type": "string"} for name in ("creationTimestamp", "deletionTimestamp")},
        **{name: {"type": "integer"} for name in ("generation", "deletionGracePeriodSeconds")},
        **{
            name: {"type": "object", "additionalProperties": {"type": "string"}}
            for name in ("labels", "annotations")
        },
        "ownerReferences": {"type": "array", "items": {"type": "object", PRESERVE: True}},
        "finalizers": {"type": "array", "items": {"type": "string"}},
    },
}


def _misleads(path: str, schema: Schema, kinds: tuple[str, ...], *, arrays: bool) -> Iterator[str]:
    """Yield why a path does not lead to a field of one of the kinds."""
    if not path.startswith("."):
        yield f"{path!r} is no path: write .spec.field"
        return
    here: Schema | None = {**schema, "properties": {**schema.get("properties", {}), "metadata": _META}}
    place = 0
    while here is not None and place < len(path):
        if here.get(PRESERVE) and "properties" not in here:
            return  # what is opaque may have the field
        step = _STEP.match(path, place)
        if step is None or (step["item"] and not arrays):
            yield f"{path!r} cannot be read at {path[place:]!r}: write .name or ['name']"
            return
        here, place = _below(here, step), step.end()
    if here is None:
        yield f"{path} leads to no field of the schema"
    elif (kind := _kind(here)) not in kinds and not here.get(PRESERVE):
        yield f"{path} leads to a field of type {kind}, not {' or '.join(kinds)}"


def _below(node: Schema, step: re.Match[str]) -> Schema | None:
    if step["item"]:
        items: Schema | None = node.get("items")
        return items
    name = step["key"] or re.sub(r"\\(.)", r"\1", step["name"])
    more = node.get("additionalProperties")
    found: Schema | None = node.get("properties", {}).get(name, more if isinstance(more, dict) else None)
    return {PRESERVE: True} if found is None and node.get(PRESERVE) else found


def _kind(node: Schema) -> str:
    return "int-or-string" if node.get(INT_OR_STRING) else str(node.get("type", "anything"))

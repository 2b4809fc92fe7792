"""What is made of the chart's values.yaml: its schema, and the table of values of the documentation.

A value's type is that of its default. RULES say more: what a map or a list contains, which words are known.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from elasticjob.api.core import definitions
from hack.generate.core.openapi import Schema
from hack.generate.json_schemas import LOCAL, built_in
from hack.generate.pages import table
from lab.paths import ROOT

VALUES: Final = ROOT / "charts" / "elasticjob" / "values.yaml"
CORE: Final = "io.k8s.api.core.v1."
AFFINITY, TOLERATION, SPREAD, VARIABLE, RESOURCES = (
    CORE + name
    for name in ("Affinity", "Toleration", "TopologySpreadConstraint", "EnvVar", "ResourceRequirements")
)


def listed(item: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


def core(name: str) -> Schema:
    """Return a reference to a type of Kubernetes."""
    return {"$ref": f"{LOCAL}{name}"}


def over(name: str) -> Schema:
    """Return the schema of fields of a type of Kubernetes of which each may be null, to take ours away."""
    fields = {
        field: {"anyOf": [each, {"type": "null"}]}
        for field, each in built_in(CORE + name)[CORE + name]["properties"].items()
    }
    return {"type": "object", "additionalProperties": False, "properties": fields}


TEXTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT: Final[Schema] = {"type": "integer", "minimum": 1}
NAMED: Final[Schema] = {"type": "string", "minLength": 1}
DURATION: Final[Schema] = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))*$"}
NAMESPACES: Final = listed(TEXTS | {"minProperties": 1})
ISSUER: Final = dict.fromkeys(("name", "kind", "group"), NAMED)
RULES: Final[Mapping[str, Schema]] = {
    "labels": TEXTS,
    "annotations": TEXTS,
    "commonLabels": TEXTS,
    "podLabels": TEXTS,
    "podAnnotations": TEXTS,
    "nodeSelector": TEXTS,
    "tolerations": listed(core(TOLERATION)),
    "affinity": core(AFFINITY),
    "topologySpreadConstraints": listed(core(SPREAD)),
    "podSecurityContext": over("PodSecurityContext"),
    "containerSecurityContext": over("SecurityContext"),
    "extraEnv": listed(core(VARIABLE)),
    "extraArgs": listed({"type": "string"}),
    "resources": core(RESOURCES),
    "imagePullSecrets": listed(
        {"type": "object", "additionalProperties": False, "required": ["name"], "properties": {"name": NAMED}}
    ),
    "fullnameOverride": {
        "type": "string",
        "maxLength": 40,
        "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$",
    },
    "nameOverride": {"type": "string", "maxLength": 63},
    "watchNamespace": {"type": "string", "maxLength": 63},
    "namespace": {"type": "string", "maxLength": 63},
    "repository": NAMED,
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "userId": {"type": "integer", "minimum": 0},
    "replicas": COUNT,
    "minAvailable": COUNT,
    "format": {"enum": ["json", "people", "console"]},
    "jobs": {"enum": ["", "people", "json"]},
    "failurePolicy": {"enum": ["Fail", "Ignore"]},
    "timeoutSeconds": {"type": "integer", "minimum": 1, "maximum": 30},
    "issuerRef": {"type": "object", "additionalProperties": False, "properties": ISSUER},
    "interval": DURATION,
    "scrapeTimeout": DURATION,
    "runbookBaseUrl": {"type": "string", "pattern": "^(https?://.+)?$"},
    "scrapers": NAMESPACES,
    "metricsFrom": NAMESPACES,
    "size": NAMED,
    "brain.secret": NAMED,
    "share": {"enum": ["none", "fulfilment", "goodput"]},
    "source": {"enum": ["masters", "prometheus", "none"]},
    "authentication": {"enum": ["token", "none"]},
}
"""Schemas by a value's path, or else by its own name."""
OPEN: Final = "global"
"""Its other names belong to a chart that contains this one; templates/refused.yaml refuses them otherwise."""


def schema_text() -> str:
    """Return values.schema.json, by which Helm refuses values that are not there."""
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    found = schema_of("", yaml.safe_load(VALUES.read_text()), {row.path: row.about for row in rows()})
    either = {"description": "Or, as in earlier charts, whether the release brings them.", "type": "boolean"}
    found["properties"]["crds"] = {"anyOf": [found["properties"]["crds"], either]}
    types = built_in(AFFINITY, TOLERATION, SPREAD, VARIABLE, RESOURCES, *inner())
    return json.dumps(draft | found | {"$defs": dict(sorted(types.items()))}, indent=2) + "\n"


def inner() -> list[str]:
    """Return the types in the fields of securityContexts."""
    parts = (definitions()[CORE + name]["properties"] for name in ("PodSecurityContext", "SecurityContext"))
    fields = [each.get("items", each) for part in parts for each in part.values()]
    return [each["$ref"].removeprefix("#/definitions/") for each in fields if "$ref" in each]


def schema_of(path: str, default: Any, about: Mapping[str, str]) -> Schema:
    """Return the schema of a value with this path and default."""
    said: Schema = {"description": about[path]} if about.get(path) else {}
    rule = RULES.get(path) or RULES.get(path.rpartition(".")[2])
    if rule is not None:
        return said | rule
    match default:
        case bool():
            return said | {"type": "boolean"}
        case str():
            return said | {"type": "string"}
        case dict() if default:
            parts = {
                name: schema_of(f"{path}.{name}".removeprefix("."), each, about)
                for name, each in default.items()
            }
            closing = {} if path == OPEN else {"additionalProperties": False}
            return said | {"type": "object", **closing, "properties": parts}
    raise ValueError(f"values.yaml: {path} needs a row in RULES of hack/generate/chart_values.py")


@dataclass(frozen=True)
class Row:
    """One value: its path, its default, and the comment before it."""

    path: str
    default: Any
    about: str


def rows() -> Iterator[Row]:
    """Yield the values in their order: each that is no group, and each group with a comment."""
    text = VALUES.read_text()
    yield from below("", yaml.compose(text), yaml.safe_load(text), text.splitlines())


def below(path: str, node: Any, values: Mapping[str, Any], lines: Sequence[str]) -> Iterator[Row]:
    """Yield the values of a group."""
    for key, inner in node.value:
        inside, default = f"{path}.{key.value}".removeprefix("."), values[key.value]
        said = itertools.takewhile(is_comment, reversed(lines[: key.start_mark.line]))
        about = " ".join(line.lstrip(" #") for line in reversed([*said]))
        if is_value(inside, default) or about:
            yield Row(inside, default, about)
        if not is_value(inside, default):
            yield from below(inside, inner, default, lines)


def is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def is_value(path: str, default: Any) -> bool:
    """Whether a value is one, and no group of values."""
    return not isinstance(default, dict) or not default or path.rpartition(".")[2] in RULES


def values_table() -> str:
    """Return the values as a table in Markdown; one without a comment is like one that has it, further up."""
    lines = []
    explained: dict[str, str] = {}
    for row in rows():
        first, _, rest = row.path.partition(".")
        like = explained.get(f"{first} {rest.rpartition('.')[2]}" if first == "metrics" else rest)
        about = row.about or (f"as `{like}`" if like else "")
        if row.about:
            explained.setdefault(row.path, row.path)
            explained.setdefault(f"{first} {row.path.rpartition('.')[2]}", row.path)
        default = json.dumps(row.default) if is_value(row.path, row.default) else ""
        lines.append((f"`{row.path}`", default and f"`{default}`", about))
    return table(("value", "default", "about"), lines)

"""Checks of a CustomResourceDefinition beyond its published schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.crd.structural import structural_problems
from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.jsonpath import BadPath, compile_path
from elasticjob.devcluster.server.model.names import (
    forbidden,
    missing,
    service_name_problem,
    subdomain_problem,
    unsupported,
    wrong,
)
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.model.strategy import immutable
from elasticjob.devcluster.server.schema.rules import expression_problems, rule_problems

_COLUMN_TYPES = ["boolean", "date", "integer", "number", "string"]
_NO_WEBHOOK = (
    "devcluster calls no conversion webhooks: serve only the storage version, or use the strategy None"
)


def definition_problems(crd: Manifest) -> Iterator[Cause]:
    """Everything that is wrong with a definition beside its metadata and its published schema."""
    spec = crd["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or ()
    group = spec.get("group") or ""
    if group and (problem := subdomain_problem(group) or ("" if "." in group else "should be a domain")):
        yield wrong("spec.group", group, problem)
    if spec.get("scope") not in (None, "Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec["scope"], ["Cluster", "Namespaced"])
    for field in ("plural", "singular", "kind", "listKind"):
        text = names.get(field) or ""
        if text and (problem := service_name_problem(text.lower() if "ind" in field else text)):
            yield wrong(f"spec.names.{field}", text, problem)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield wrong("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")
    if spec.get("preserveUnknownFields"):
        why = "must be false: set x-kubernetes-preserve-unknown-fields in the schema instead"
        yield wrong("spec.preserveUnknownFields", True, why)
    called = [each.get("name") for each in versions]
    if len(set(called)) < len(called):
        yield wrong("spec.versions", called, "must contain unique version names")
    if sum(bool(each.get("storage")) for each in versions) != 1:
        yield wrong("spec.versions", called, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        yield from _version_problems(version, f"spec.versions[{index}]")
    yield from _conversion_problems(spec)


def update_problems(crd: Manifest, old: Manifest) -> Iterator[Cause]:
    """Problems of an updated definition: its names and its stored versions must stay."""
    yield from definition_problems(crd)
    spec, before = crd["spec"], old["spec"]
    yield from immutable(before["group"], spec.get("group"), "spec.group")
    yield from immutable(before["names"]["plural"], spec["names"].get("plural"), "spec.names.plural")
    if is_true(old, "Established"):
        yield from immutable(before["scope"], spec.get("scope"), "spec.scope")
        yield from immutable(before["names"]["kind"], spec["names"].get("kind"), "spec.names.kind")
    called = [each.get("name") for each in spec.get("versions") or ()]
    for index, name in enumerate((crd.get("status") or {}).get("storedVersions") or ()):
        if name not in called:
            why = "objects may be stored in it: it must remain in spec.versions"
            yield wrong(f"status.storedVersions[{index}]", name, why)


def name_problems(crd: Manifest) -> Iterator[Cause]:
    """The name of a definition must be `<plural>.<group>`."""
    spec, name = crd["spec"], crd["metadata"].get("name", "")
    if name and name != f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}":
        yield wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def is_true(crd: Mapping[str, Any], condition: str) -> bool:
    """Whether a definition has this condition."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == condition and each.get("status") == "True" for each in conditions)


def _version_problems(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    name, where = version.get("name") or "", f"{path}.schema.openAPIV3Schema"
    if problem := service_name_problem(name):
        yield wrong(f"{path}.name", name, problem)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield missing(where)
    else:
        found = [*structural_problems(schema, where), *rule_problems(schema, where)]
        yield from found or expression_problems(schema, where)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        if column.get("type") not in (None, *_COLUMN_TYPES):
            place = f"{path}.additionalPrinterColumns[{index}].type"
            yield unsupported(place, column["type"], _COLUMN_TYPES)
    for place, text in _json_paths(version):
        try:
            compile_path(text)
        except BadPath as error:
            yield wrong(f"{path}.{place}", text, str(error))
        if not text.startswith("."):
            yield wrong(f"{path}.{place}", text, "must be a simple json path starting with .")


def _json_paths(version: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The JSON paths of a version, each with its field."""
    for field in ("additionalPrinterColumns", "selectableFields"):
        for index, each in enumerate(version.get(field) or ()):
            if "jsonPath" in each:
                yield f"{field}[{index}].jsonPath", each["jsonPath"]
    for field, text in ((version.get("subresources") or {}).get("scale") or {}).items():
        if text:
            yield f"subresources.scale.{field}", text


def _conversion_problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    strategy = (spec.get("conversion") or {}).get("strategy")
    served = [each for each in spec.get("versions") or () if each.get("served")]
    if strategy not in ("None", "Webhook"):
        yield unsupported("spec.conversion.strategy", strategy, ["None", "Webhook"])
    elif strategy == "Webhook" and not all(each.get("storage") for each in served):
        yield forbidden("spec.conversion.strategy", _NO_WEBHOOK)

"""CustomResourceDefinitions: what is accepted, and the resources that come from one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.cells import NAME, Age, age, column
from elasticjob.devcluster.server.costs import cost_problems
from elasticjob.devcluster.server.definitions import (
    column_problems,
    name_problems,
    scale_problems,
    selectable_problems,
)
from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.jsonpath import compile_path
from elasticjob.devcluster.server.names import missing, unsupported, wrong
from elasticjob.devcluster.server.registry import Column, Conversion, Resource, Scale
from elasticjob.devcluster.server.rules import rule_problems, rules_of
from elasticjob.devcluster.server.schemas import PRESERVE, custom_schema
from elasticjob.devcluster.server.store import Manifest, Type
from elasticjob.devcluster.server.strategy import Strategy, immutable, put
from elasticjob.devcluster.server.structural import structural_problems

CRDS = Type("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def _default(crd: Manifest) -> None:
    spec = crd.setdefault("spec", {})
    put(spec, conversion={"strategy": "None"})
    if stored := (crd.get("status") or {}).get("storedVersions"):
        stored += [name for name in _storage(spec) if name not in stored]
    names = spec.get("names") or {}
    if names.get("kind"):
        put(names, singular=names["kind"].lower(), listKind=f"{names['kind']}List")


def _start(crd: Manifest) -> None:
    stamp = crd["metadata"]["creationTimestamp"]
    crd["metadata"]["finalizers"] = [*(crd["metadata"].get("finalizers") or ()), CLEANUP]
    _accept(
        crd,
        [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", stamp),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", stamp),
        ],
    )


def _condition(type_: str, reason: str, message: str, stamp: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp,
    }


def _accept(crd: Manifest, conditions: list[dict[str, str]]) -> None:
    crd["status"] = {
        "acceptedNames": crd["spec"].get("names") or {},
        "conditions": conditions,
        "storedVersions": _storage(crd["spec"]),
    }


def _storage(spec: Mapping[str, Any]) -> list[str]:
    """The version that is stored now."""
    return [each["name"] for each in spec.get("versions") or () if each.get("storage") and each.get("name")]


def _check(crd: Manifest) -> Iterator[Cause]:
    spec = crd["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    for field, value in (
        ("spec.group", spec.get("group")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.versions", versions),
    ):
        if not value:
            yield missing(field)
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield unsupported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"])
    expected = f"{names.get('plural')}.{spec.get('group')}"
    name = crd["metadata"].get("name", "")
    if name != expected:
        yield wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield wrong("spec.versions", "", "must have exactly one version marked as storage version")
    yield from name_problems(crd)
    for index, version in enumerate(versions):
        yield from _check_version(version, f"spec.versions[{index}]", alone=len(versions) == 1)


def _check_version(version: Mapping[str, Any], path: str, *, alone: bool) -> Iterator[Cause]:
    """`alone`: the real server names the fields of a single version by their place in an older API."""
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield missing(f"{path}.schema.openAPIV3Schema", "schemas are required")
        return
    where = "spec.validation.openAPIV3Schema" if alone else f"{path}.schema.openAPIV3Schema"
    found = list(structural_problems(schema, where))
    yield from found
    if not found:
        found = list(rule_problems(schema, where))
        yield from found or cost_problems(schema, where)
    yield from column_problems(
        version.get("additionalPrinterColumns") or (), _field(path, "additionalPrinterColumns", alone)
    )
    yield from selectable_problems(
        version.get("selectableFields") or (), schema, _field(path, "selectableFields", alone)
    )
    scale = (version.get("subresources") or {}).get("scale")
    yield from scale_problems(scale, _field(path, "subresources.scale", alone))


def _field(path: str, name: str, alone: bool) -> str:
    return f"spec.{name}" if alone else f"{path}.{name}"


def _check_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check(new)
    yield from immutable(old["spec"].get("scope"), new["spec"].get("scope"), "spec.scope")
    yield from immutable(
        old["spec"]["names"].get("kind"), new["spec"]["names"].get("kind"), "spec.names.kind"
    )
    yield from _check_stored(new, (old.get("status") or {}).get("storedVersions") or ())


def _check_stored(new: Manifest, stored: Iterable[str]) -> Iterator[Cause]:
    """Versions in which objects may be stored stay, served or not."""
    names = {version.get("name") for version in new["spec"].get("versions") or ()}
    for index, name in enumerate(stored):
        if name not in names:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in "
                f"{name} and removes {name} from status.storedVersions"
            )
            yield wrong(f"status.storedVersions[{index}]", name, why)


CRD = Strategy(_default, _start, _check, _check_update, generation=True, needs_version=True)


def resources_of(crd: Manifest) -> Iterator[Resource]:
    """The resources that a definition stands for, one per served version, the preferred one first."""
    spec = crd["spec"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    served = [version for version in spec["versions"] if version.get("served")]
    for version in sorted(served, key=lambda each: not each.get("storage")):
        yield _resource(spec, version, storage)


def _resource(spec: Mapping[str, Any], version: Mapping[str, Any], storage: str) -> Resource:
    names, own = spec["names"], version["schema"]["openAPIV3Schema"]
    schema = custom_schema(own | ({PRESERVE: True} if spec.get("preserveUnknownFields") else {}))
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    selectable = tuple(each["jsonPath"].lstrip(".") for each in version.get("selectableFields") or ())
    webhook = ((spec.get("conversion") or {}).get("webhook") or {}).get("clientConfig")
    deprecated = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
    return Resource(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        schema,
        namespaced=spec["scope"] == "Namespaced",
        singular=names["singular"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        scale=Scale(
            scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
        )
        if scale
        else None,
        fields=selectable,
        columns=_columns(version.get("additionalPrinterColumns") or ()),
        custom=True,
        conversion=None
        if webhook or version["name"] == storage
        else _renaming(spec["group"], version["name"], storage),
        webhook=webhook,
        storage_version=storage,
        rules=rules_of(schema),
        warning=(version.get("deprecationWarning") or deprecated) if version.get("deprecated") else "",
    )


def _renaming(group: str, served: str, storage: str) -> Conversion:
    """The `None` conversion: versions differ in name only."""
    return Conversion(
        lambda item: item | {"apiVersion": f"{group}/{storage}"},
        lambda item: item | {"apiVersion": f"{group}/{served}"},
    )


def _columns(columns: Any) -> tuple[Column, ...]:
    return (NAME, *(_column(each) for each in columns)) if columns else _WITHOUT_COLUMNS


_WITHOUT_COLUMNS = (NAME, column("Age", age(), type_="date"))


def _column(said: Mapping[str, Any]) -> Column:
    find = compile_path(said["jsonPath"])
    kind = said["type"]

    def read(item: Manifest) -> Any:
        found = [value for value in find(item) if value is not None]
        if not found:
            return None
        if kind == "date":
            return Age(found[0])
        return found[0] if kind in ("integer", "number") and len(found) == 1 else _text(found)

    return Column(
        said["name"],
        read,
        kind,
        said.get("format", ""),
        said.get("description", ""),
        said.get("priority", 0),
    )


def _text(found: list[Any]) -> str:
    return ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in found)

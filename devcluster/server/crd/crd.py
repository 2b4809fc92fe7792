"""CustomResourceDefinitions: their defaults, and the resources that they declare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.crd.definitions import (
    definition_problems,
    is_true,
    name_problems,
    update_problems,
)
from elasticjob.devcluster.server.model.jsonpath import compile_path
from elasticjob.devcluster.server.model.registry import Column, Conversion, Resource, Scale
from elasticjob.devcluster.server.model.schemas import custom_schema
from elasticjob.devcluster.server.model.store import Manifest, Type
from elasticjob.devcluster.server.model.strategy import Strategy, put
from elasticjob.devcluster.server.read.cells import NAME, Age, age, column
from elasticjob.devcluster.server.schema.evaluation import rules_of

CRDS = Type("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def _default(crd: Manifest) -> None:
    spec = crd.setdefault("spec", {})
    put(spec, conversion={"strategy": "None"})
    if (status := crd.get("status")) is not None and not status.get("storedVersions"):
        status["storedVersions"] = _storage(spec)
    names = spec.get("names") or {}
    if names.get("kind"):
        put(names, singular=names["kind"].lower(), listKind=f"{names['kind']}List")


def _start(crd: Manifest) -> None:
    """Nothing is accepted yet: that is the work of `establishing`."""
    stored = _storage(crd["spec"])
    crd["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
    crd["status"] |= {"storedVersions": stored or None}


def _follow(crd: Manifest) -> None:
    """A version that has become the stored one is on the books."""
    status = crd.get("status") or {}
    stored = status.get("storedVersions") or []
    new = [name for name in _storage(crd["spec"]) if name not in stored]
    crd["status"] = status | {"storedVersions": [*stored, *new]}


def _end(crd: Manifest, now: str) -> None:
    """Have a definition wait until its objects are gone."""
    metadata, status = crd["metadata"], crd.setdefault("status", {})
    if metadata.get("deletionTimestamp"):
        return
    metadata["deletionTimestamp"] = now
    finalizers = metadata.get("finalizers") or ()
    metadata["finalizers"] = [*(each for each in finalizers if each != CLEANUP), CLEANUP]
    status["conditions"] = [*(status.get("conditions") or ()), _TERMINATING | {"lastTransitionTime": now}]


_TERMINATING = {
    "type": "Terminating",
    "status": "True",
    "reason": "InstanceDeletionPending",
    "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
}


def _storage(spec: Mapping[str, Any]) -> list[str]:
    """The version that is stored now."""
    versions = spec.get("versions") or ()
    return [each["name"] for each in versions if each.get("storage") and each.get("name")][:1]


CRD = Strategy(
    _default,
    _start,
    definition_problems,
    update_problems,
    generation=True,
    needs_version=True,
    end=_end,
    follow=_follow,
    check_name=name_problems,
)


def is_served(crd: Manifest) -> bool:
    """Whether there are objects of a definition: its names are accepted, or were once."""
    return is_true(crd, "NamesAccepted") or is_true(crd, "Established")


def resources_of(crd: Manifest) -> Iterator[Resource]:
    """The resources that a definition stands for, one per served version, the preferred one first."""
    spec = crd["spec"]
    storage = next(version for version in spec["versions"] if version.get("storage"))
    served = [version for version in spec["versions"] if version.get("served")]
    for version in sorted(served, key=lambda each: precedence(each["name"])):
        yield _resource(spec, version, storage)


def precedence(version: str) -> tuple[int, int, int, str]:
    """Sort key of versions: v10, v2, v1, v2beta1, v1beta2, v1alpha1; then all others by name."""
    parts = re.fullmatch(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?", version)
    if parts is None:
        return (1, 0, 0, version)
    stability = {None: 0, "beta": 1, "alpha": 2}[parts[2]] - 3
    return (stability, -int(parts[1]), -int(parts[3] or 0), version)


def _resource(spec: Mapping[str, Any], version: Mapping[str, Any], storage: Mapping[str, Any]) -> Resource:
    names, schema = spec["names"], custom_schema(version["schema"]["openAPIV3Schema"])
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    selectable = tuple(each["jsonPath"].lstrip(".") for each in version.get("selectableFields") or ())
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
        if version["name"] == storage["name"]
        else _renaming(spec["group"], version["name"], storage["name"]),
        storage_version=storage["name"],
        rules=rules_of(schema),
        warning=(version.get("deprecationWarning") or deprecated) if version.get("deprecated") else "",
    )


def _renaming(group: str, served: str, storage: str) -> Conversion:
    """The `None` conversion: only apiVersion changes."""
    return Conversion(
        lambda item: item | {"apiVersion": f"{group}/{storage}"},
        lambda item: item | {"apiVersion": f"{group}/{served}"},
    )


def _columns(columns: Any) -> tuple[Column, ...]:
    return (NAME, *(_column(each) for each in columns)) if columns else _WITHOUT_COLUMNS


_WITHOUT_COLUMNS = (NAME, column("Age", age(), type_="date"))


def _column(spec: Mapping[str, Any]) -> Column:
    find = compile_path(spec["jsonPath"])
    kind = spec["type"]

    def read(item: Manifest) -> Any:
        found = [value for value in find(item) if value is not None]
        if not found:
            return None
        if kind == "date":
            return Age(found[0])
        return found[0] if kind in ("integer", "number") and len(found) == 1 else _text(found)

    return Column(
        spec["name"],
        read,
        kind,
        spec.get("format", ""),
        spec.get("description", ""),
        spec.get("priority", 0),
    )


def _text(found: list[Any]) -> str:
    return ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in found)

"""Discovery: `/api`, `/apis` in the old and the aggregated form."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from elasticjob.devcluster.server.model.registry import VERBS, Registry, Resource
from elasticjob.devcluster.server.model.store import Manifest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

# Kinds that are only asked, never stored: (group, version, plural, kind)
REVIEWS = (
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"),
    ("authentication.k8s.io", "v1", "tokenreviews", "TokenReview"),
    ("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
)
_OF_NAMESPACES = ("localsubjectaccessreviews",)
# subresource → (group, version, kind, verbs) of its body
_SUBRESOURCES = {
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "log": ("", "v1", "Pod", ("get",)),
}
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_OWN_VERBS = ("get", "patch", "update")


def wants_aggregated(accept: str) -> bool:
    """Whether the first choice of an Accept header is aggregated discovery."""
    first = {part.strip() for part in accept.split(",")[0].split(";")}
    return {"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} <= first


def versions(registry: Registry) -> dict[str, list[str]]:
    """Group → versions, the groups of reviews included."""
    found = registry.groups()
    for group, version, _, _ in REVIEWS:
        found.setdefault(group, [version])
    return found


def core_versions() -> Manifest:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(registry: Registry) -> Manifest:
    groups = [_group(group, found) for group, found in versions(registry).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Manifest | None:
    found = versions(registry).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, found) if found else None


def _group(name: str, found: list[str]) -> Manifest:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in found]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def resource_list(registry: Registry, group_name: str, version: str) -> Manifest | None:
    """The APIResourceList of one group version."""
    found = [entry for resource in registry.within(group_name, version) for entry in _entries(resource)]
    found += [
        _review_entry(plural, kind)
        for name, of, plural, kind in REVIEWS
        if (name, of) == (group_name, version)
    ]
    api_version = f"{group_name}/{version}" if group_name else version
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found}
    return body if found else None


def _review_entry(plural: str, kind: str) -> Manifest:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "namespaced": plural in _OF_NAMESPACES,
        "kind": kind,
        "verbs": ["create"],
    }


def _storage_hash(resource: Resource) -> str:
    """A hash of the storage version."""
    version = resource.stored_api_version.rpartition("/")[2]
    digest = hashlib.sha256(f"{resource.group}/{version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _entries(resource: Resource) -> list[Manifest]:
    entry: Manifest = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_CUSTOM_VERBS if resource.custom else VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.custom:
        entry["storageVersionHash"] = _storage_hash(resource)
    return [entry, *(_sub_entry(resource, name) for name in subresources(resource))]


def subresources(resource: Resource) -> list[str]:
    own = (*(["status"] if resource.status else []), *(["scale"] if resource.scale else []))
    return [*own, *resource.subresources]


def _sub_entry(resource: Resource, name: str) -> Manifest:
    group_name, version, kind, verbs = _SUBRESOURCES.get(
        name, (resource.group, resource.version, resource.kind, _OWN_VERBS)
    )
    entry: Manifest = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }
    foreign = (group_name, version) != (resource.group, resource.version)
    return entry | ({"group": group_name, "version": version} if foreign else {})


def aggregate(registry: Registry, core: bool) -> Manifest:
    """The APIGroupDiscoveryList of `/api` (core) or `/apis`."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [_aggregated_version(registry, name, version) for version in found],
        }
        for name, found in versions(registry).items()
        if (name == "") == core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_version(registry: Registry, group_name: str, version: str) -> Manifest:
    found = [_aggregated_resource(resource) for resource in registry.within(group_name, version)]
    found += [_aggregated_review(*row) for row in REVIEWS if row[:2] == (group_name, version)]
    return {"version": version, "resources": found, "freshness": "Current"}


def _aggregated_review(group_name: str, version: str, plural: str, kind: str) -> Manifest:
    return {
        "resource": plural,
        "responseKind": {"group": group_name, "version": version, "kind": kind},
        "scope": "Namespaced" if plural in _OF_NAMESPACES else "Cluster",
        "singularResource": kind.lower(),
        "verbs": ["create"],
    }


def _aggregated_resource(resource: Resource) -> Manifest:
    body: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(_CUSTOM_VERBS if resource.custom else VERBS),
    }
    if resource.short_names:
        body["shortNames"] = list(resource.short_names)
    if resource.categories:
        body["categories"] = list(resource.categories)
    below = [_aggregated_sub(resource, name) for name in subresources(resource)]
    return body | ({"subresources": below} if below else {})


def _aggregated_sub(resource: Resource, name: str) -> Manifest:
    group_name, version, kind, verbs = _SUBRESOURCES.get(
        name, (resource.group, resource.version, resource.kind, _OWN_VERBS)
    )
    return {
        "subresource": name,
        "responseKind": {"group": group_name, "version": version, "kind": kind},
        "verbs": list(verbs),
    }

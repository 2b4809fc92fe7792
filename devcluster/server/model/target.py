"""The target of a URL: a resource, an object, a subresource."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob.devcluster.server.model.errors import NoSuchPage, absent, not_found, unknown_path
from elasticjob.devcluster.server.model.registry import Registry, Resource


@dataclass(frozen=True)
class Target:
    """A parsed resource path. `name` is "" for collections, `namespace` "" for all or none."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: list[str], registry: Registry) -> Target:
    """`["apis", group, version, …]` or `["api", "v1", …]` → Target, or 404."""
    group, version, rest = ("", path[1], path[2:]) if path[0] == "api" else (path[1], path[2], path[3:])
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and registry.find(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    if version not in registry.groups().get(group, ()):
        raise NoSuchPage
    resource = registry.find(group, version, rest[0])
    if resource is None and all(each.custom for each in registry.within(group, version)):
        raise NoSuchPage
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise unknown_path()
    name, subresource = (*rest[1:], "", "")[:2]
    if name and resource.namespaced and not namespace:
        raise unknown_path()
    if subresource and not _has(resource, subresource):
        if resource.custom:
            raise not_found(resource.group, resource.plural, name)
        raise absent(subresource) if subresource in _ABSENT else unknown_path()
    return Target(resource, namespace, name, subresource)


_ABSENT = frozenset({"exec", "attach", "portforward", "proxy", "ephemeralcontainers"})


def _has(resource: Resource, subresource: str) -> bool:
    return (
        subresource in resource.subresources
        or (subresource == "status" and resource.status)
        or (subresource == "scale" and resource.scale is not None)
        or (subresource == "finalize" and resource.plural == "namespaces" and not resource.custom)
    )

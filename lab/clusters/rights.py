"""A client that records the RBAC rights which its requests need."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

from elasticjob.kube.client.client import Client, Page
from elasticjob.kube.client.transport import Call
from elasticjob.kube.objects.kinds import Kind, Manifest

ONE = "metadata.name="


class Right(NamedTuple):
    """The right that a request needs; `name` is "" if it names no object."""

    group: str
    resource: str
    verb: str
    name: str


class Noting(Client):
    """Notes every request that passes its public methods in `used`."""

    used: set[Right]

    def note(self, kind: Kind[Any], verb: str, name: str = "", subresource: str = "") -> None:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        self.__dict__.setdefault("used", set()).add(Right(kind.group, resource, verb, name))

    async def get(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        self.note(kind, "get", name)
        return await super().get(kind, name, namespace)

    async def page(self, kind: Kind[Any], namespace: str | None = None, **options: Any) -> Page:
        self.note(kind, "list", chosen(options.get("fields", "")))
        return await super().page(kind, namespace, **options)

    async def create(
        self, kind: Kind[Any], manifest: Manifest, namespace: str | None = None, *, dry_run: bool = False
    ) -> Any:
        self.note(kind, "create")
        return await super().create(kind, manifest, namespace, dry_run=dry_run)

    async def apply(self, kind: Kind[Any], manifest: Manifest, **options: Any) -> Any:
        name, subresource = manifest["metadata"]["name"], options.get("subresource", "")
        self.note(kind, "patch", name, subresource)
        if not manifest["metadata"].get("uid"):
            self.note(kind, "create", subresource=subresource)
        return await super().apply(kind, manifest, **options)

    async def merge_patch(
        self, kind: Kind[Any], name: str, patch: Manifest, namespace: str | None = None, **options: Any
    ) -> Any:
        self.note(kind, "patch", name, options.get("subresource", ""))
        return await super().merge_patch(kind, name, patch, namespace, **options)

    async def delete(self, kind: Kind[Any], name: str, namespace: str | None = None, **options: Any) -> None:
        self.note(kind, "delete", name)
        await super().delete(kind, name, namespace, **options)

    def stream(self, call: Call, **options: Any) -> Any:
        parts = call.path.strip("/").split("/")
        group = parts[1] if parts[0] == "apis" else ""
        name = chosen(call.params.get("fieldSelector", ""))
        self.__dict__.setdefault("used", set()).add(Right(group, parts[-1], "watch", name))
        return super().stream(call, **options)


def chosen(fields: str) -> str:
    """The object name in a field selector, as RBAC reads it; "" if absent."""
    return next((word.removeprefix(ONE) for word in fields.split(",") if word.startswith(ONE)), "")


def allows(rules: builtins.list[Manifest], right: Right) -> bool:
    """Whether the rules of a ClusterRole grant a right."""
    return any(
        right.group in rule["apiGroups"]
        and right.resource in rule["resources"]
        and right.verb in rule["verbs"]
        and (not rule.get("resourceNames") or right.name in rule["resourceNames"])
        for rule in rules
    )

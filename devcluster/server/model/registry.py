"""The registry of resources: the built-in table plus those of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from elasticjob.devcluster.server.model.schemas import Schema
from elasticjob.devcluster.server.model.store import Manifest, Type

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Column:
    """One printer column; `read` gives the cell."""

    name: str
    read: Callable[[Manifest], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True)
class Scale:
    """Where a custom resource keeps its size."""

    replicas: str
    status_replicas: str
    selector: str = ""


@dataclass(frozen=True)
class Conversion:
    """How one served version differs from the stored one."""

    to_storage: Callable[[Manifest], Manifest]
    from_storage: Callable[[Manifest], Manifest]


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource in one version, with everything that handlers need to know about it."""

    group: str
    version: str
    kind: str
    plural: str
    schema: Schema
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    scale: Scale | None = None
    fields: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    custom: bool = False
    conversion: Conversion | None = None
    storage_group: str | None = None
    storage_version: str = ""
    subresources: tuple[str, ...] = ()
    rules: tuple[Any, ...] = field(default=(), repr=False)
    warning: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_api_version(self) -> str:
        group = self.group if self.storage_group is None else self.storage_group
        version = self.storage_version or self.version
        return f"{group}/{version}" if group else version

    @property
    def type(self) -> Type:
        return Type(self.group if self.storage_group is None else self.storage_group, self.plural)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"


class Registry:
    """Resources by (group, version, plural). The first version added of a group is its preferred one."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self.changes = 0

    def add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.version, resource.plural] = resource
        self.changes += 1

    def remove(self, group: str, plural: str) -> None:
        gone = [key for key in self._resources if key[0] == group and key[2] == plural]
        for key in gone:
            del self._resources[key]
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def of_kind(self, group: str, kind: str) -> Resource | None:
        """Any served version of a kind: enough to find its objects."""
        return next((each for each in self if each.group == group and each.kind == kind), None)

    def of_type(self, type_: Type) -> Resource | None:
        """The resource that is stored as this type."""
        return next((each for each in self if each.type == type_ and each.storage_group is None), None)

    def groups(self) -> dict[str, list[str]]:
        """Group → its versions, in the order of preference."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._resources:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def within(self, group: str, version: str) -> list[Resource]:
        return [each for each in self if (each.group, each.version) == (group, version)]

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._resources.values()))

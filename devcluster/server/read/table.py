"""The Table form of lists and watch events: what `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from elasticjob.devcluster.server.model.registry import Column, Resource
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.read.cells import AGE, NAME, Age, Restarts, human

TYPE_HINTS = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


def columns_of(resource: Resource) -> tuple[Column, ...]:
    return resource.columns or (NAME, AGE)


def table(
    resource: Resource,
    objects: Iterable[Manifest],
    metadata: Mapping[str, Any],
    now: datetime,
    *,
    include: str = "Metadata",
    headers: bool = True,
) -> Manifest:
    """A Table of objects; `include` says how much of each object rides along (None, Metadata, Object)."""
    columns = columns_of(resource)
    definitions = [_definition(column) for column in columns] if headers else None
    rows = [{"cells": cells(columns, each, now), **_carry(each, include)} for each in objects]
    return {**TYPE_HINTS, "metadata": dict(metadata), "columnDefinitions": definitions, "rows": rows}


def cells(columns: Iterable[Column], item: Manifest, now: datetime) -> list[Any]:
    return [_show(column.read(item), now) for column in columns]


def _show(value: Any, now: datetime) -> Any:
    if isinstance(value, Age):
        return human(value, now)
    if isinstance(value, Restarts):
        restarts, last = value.split("|")
        return f"{restarts} ({human(last, now)} ago)"
    return value


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _carry(item: Manifest, include: str) -> dict[str, Any]:
    if include == "None":
        return {"object": None}
    return {"object": item if include == "Object" else partial(item)}


def partial(item: Manifest) -> Manifest:
    """The PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}

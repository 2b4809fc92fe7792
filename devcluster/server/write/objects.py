"""Reads and writes of objects, with the rules that hold for every kind.

A write is: decode → default → admission → check → store. Only admission awaits, and only when a webhook
matches.
"""

from __future__ import annotations

from typing import Any

from elasticjob.devcluster.server.model.asking import Answer, Compute, Deletion, Options
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.write import creating, deleting, updating
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.fields import Path


class Objects(Core):
    """All writes and single reads."""

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Any,
        options: Options,
        *,
        applied: bool = False,
        emptied: frozenset[Path] = frozenset(),
    ) -> Answer:
        """Store a new object. AlreadyExists, Invalid, NotFound (its namespace) or Forbidden (a terminating
        one, or missing rights). `emptied` are the empty containers that an apply owns.
        """
        made = creating.Applied(emptied) if applied else None
        return await creating.create(self, resource, namespace, body, options, made)

    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        compute: Compute,
        options: Options,
        *,
        subresource: str = "",
        version: str = "",
        applied: bool = False,
    ) -> Answer:
        """Replace an object by `compute(old)`. `version` is the resourceVersion that it must have."""
        change = updating.Change(resource, namespace, name, compute, options, subresource, version, applied)
        return await updating.update(self, change)

    async def delete(
        self, resource: Resource, namespace: str, name: str, deletion: Deletion, options: Options
    ) -> Answer:
        """Mark an object for deletion, or remove it when nothing holds it any more. NotFound, Conflict."""
        return await deleting.delete(self, resource, namespace, name, deletion, options)

"""Reading the objects of former lives of a job: from the caches, and from the server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.controllers.parts.owners import (
    Ownership,
    kind_by_reference,
    kinds_outside_caches,
    owned_by_ours,
)
from elasticjob.controllers.passes.observe import Caches, read_metadata
from elasticjob.controllers.passes.orphans.decide import Answer, Leftovers
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import POD, ObjectMeta, OwnerReference

log = logging.getLogger(__name__)


def left_behind(caches: Caches, key: Key, waiting: Kind[Any] | None, obstacle: Ownership | None) -> Leftovers:
    """Return what the caches show of former lives of a job and its JobResource, and `obstacle` with it."""
    found = {each.uid: each for each in _others(caches, key)}
    if obstacle is not None:
        found[obstacle.uid] = obstacle  # read from the server, so at least as new as the cache
    urgent = (each for each in found.values() if each == obstacle or _is_in_the_way(each, waiting))
    return Leftovers(tuple(found.values()), tuple(urgent))


async def ask(client: Client, owner: OwnerReference, namespace: str) -> Answer:
    """Ask the server whether an owner is gone, and for its objects that no cache shows."""
    kind = kind_by_reference(owner)
    there = await _read(client, kind, owner.name, namespace) if kind else None
    if there is None:
        return Answer(owner, complete=False)
    if there.uid == owner.uid:
        return Answer(owner)
    hidden = [
        (kind, await _read(client, kind, name, namespace)) for kind, name in kinds_outside_caches(owner)
    ]
    found = (owned_by_ours(kind, metadata) for kind, metadata in hidden if metadata is not None)
    theirs = tuple(each for each in found if each is not None and each.owner.uid == owner.uid)
    return Answer(owner, True, theirs, complete=all(metadata is not None for _, metadata in hidden))


def _others(caches: Caches, key: Key) -> Iterator[Ownership]:
    """The objects of other lives; nothing is decoded, since each pass looks at all pods of a job."""
    for owners in (caches.jobs, caches.resources):
        present = owners.meta(key)
        for kind, meta in caches.made_for(owners.kind, key):
            is_of_present = present and any(each.uid == present.uid for each in meta.owner_references or ())
            if not is_of_present and (found := owned_by_ours(kind, meta)) is not None:
                yield found


def _is_in_the_way(orphan: Ownership, waiting: Kind[Any] | None) -> bool:
    """A job waits for JobResource and master of its namesake, a JobResource for the pods of its own."""
    return waiting is not None and orphan.owner.kind == waiting.name and orphan.kind in (JOBRESOURCE, POD)


async def _read(client: Client, kind: Kind[Any], name: str, namespace: str) -> ObjectMeta | None:
    """The metadata of an object, empty if there is no such object, None if that could not be read."""
    try:
        return await read_metadata(client, kind, name, namespace)
    except (ApiError, Unreachable) as error:
        about = {"kind": kind.name, "object": f"{namespace}/{name}", "error": str(error)}
        log.warning("an object that may be an orphan, or its owner, could not be read", extra=about)
        return None

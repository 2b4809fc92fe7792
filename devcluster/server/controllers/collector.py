"""The garbage collector: deletes objects whose owners are gone.

An object keeps living while one owner lives. Without any, it is deleted: in the foreground when an owner
waits for it and it owns something itself, else in the background. An owner that is deleted with `Orphan`
first lets go of its dependents; with `Foreground` it waits for those that block it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.model.asking import FOREGROUND, ORPHAN, Deletion, Options, User
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.store import Entry, Event, Manifest, Type
from elasticjob.devcluster.server.model.worker import Worker
from elasticjob.devcluster.server.write import deleting, updating
from elasticjob.devcluster.server.write.core import Core

OPTIONS = Options(
    User("system:serviceaccount:kube-system:generic-garbage-collector", ("system:masters",)), "gc"
)


@dataclass(frozen=True)
class Item:
    """The name of one object of any type."""

    type: Type
    namespace: str
    name: str


@dataclass(frozen=True)
class Owners:
    """The owner references of an object, sorted by the state of the owner."""

    solid: tuple[str, ...]
    waiting: tuple[str, ...]
    gone: tuple[str, ...]


def item_of(type_: Type, stored: Entry) -> Item:
    return Item(type_, stored.metadata.get("namespace", ""), stored.metadata["name"])


class Collector:
    """Follows every change of the store; deletes through the same door as everybody else."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = core.store
        self._dependents: dict[str, dict[Item, None]] = {}
        self._worker = Worker(self._handle)
        self._store.listen(self._follow)

    async def run(self) -> None:
        await self._worker.run()

    def _follow(self, type_: Type, event: Event) -> None:
        item = item_of(type_, event.new)
        before, after = _owner_uids(event.old), _owner_uids(event.new if event.change != "DELETED" else None)
        for uid in before - after:
            self._dependents.get(uid, {}).pop(item, None)
        for uid in after - before:
            self._dependents.setdefault(uid, {})[item] = None
        if event.change == "DELETED":
            self._release(event.new.metadata["uid"], event.new)
        elif after or event.new.metadata.get("deletionTimestamp"):
            self._worker.add(item)

    def _release(self, uid: str, owner: Entry) -> None:
        """Check the dependents of a deleted object, and its owners that wait for foreground deletion."""
        for item in self._dependents.pop(uid, {}):
            self._worker.add(item)
        for reference in owner.metadata.get("ownerReferences") or ():
            found = self._owner(reference, owner.metadata.get("namespace", ""))
            if found and found[1].metadata.get("deletionTimestamp"):
                self._worker.add(item_of(found[0].type, found[1]))

    async def _handle(self, item: Item) -> None:
        stored = self._store.get(item.type, item.namespace, item.name)
        resource = self._core.registry.of_type(item.type)
        if stored is None or resource is None:
            return
        finalizers = stored.metadata.get("finalizers") or ()
        if stored.metadata.get("deletionTimestamp"):
            if ORPHAN in finalizers:
                await self._orphan(resource, item, stored)
            elif FOREGROUND in finalizers:
                await self._wait_for_dependents(resource, item, stored)
            return
        await self._judge(resource, item, stored)

    async def _judge(self, resource: Resource, item: Item, stored: Entry) -> None:
        """Delete an object without a living owner; otherwise drop its references to deleted owners."""
        owners = self._classify(stored)
        useless = {*owners.waiting, *owners.gone}
        if not useless:
            return
        if owners.solid:
            await self._forget_owners(resource, item, useless)
            return
        has_dependents = bool(self._dependents.get(stored.metadata["uid"]))
        policy = "Foreground" if owners.waiting and has_dependents else "Background"
        deletion = Deletion(propagation=policy, uid=stored.metadata["uid"])
        await deleting.delete(self._core, resource, item.namespace, item.name, deletion, OPTIONS)

    def _classify(self, stored: Entry) -> Owners:
        groups: dict[str, list[str]] = {"solid": [], "waiting": [], "gone": []}
        for reference in stored.metadata.get("ownerReferences") or ():
            state = self._state(reference, stored.metadata.get("namespace", ""))
            groups[state].append(reference["uid"])
        return Owners(tuple(groups["solid"]), tuple(groups["waiting"]), tuple(groups["gone"]))

    def _state(self, reference: Mapping[str, Any], namespace: str) -> str:
        group = reference["apiVersion"].rpartition("/")[0]
        if self._core.registry.of_kind(group, reference["kind"]) is None:
            return "solid"  # a kind that is not served cannot be looked up: never delete on a guess
        found = self._owner(reference, namespace)
        if found is None:
            return "gone"
        metadata = found[1].metadata
        waits = metadata.get("deletionTimestamp") and FOREGROUND in (metadata.get("finalizers") or ())
        return "waiting" if waits and reference.get("blockOwnerDeletion") else "solid"

    def _owner(self, reference: Mapping[str, Any], namespace: str) -> tuple[Resource, Entry] | None:
        group = reference["apiVersion"].rpartition("/")[0]
        resource = self._core.registry.of_kind(group, reference["kind"])
        if resource is None:
            return None
        found = self._store.get(resource.type, namespace if resource.namespaced else "", reference["name"])
        return (resource, found) if found and found.metadata["uid"] == reference["uid"] else None

    async def _orphan(self, resource: Resource, item: Item, stored: Entry) -> None:
        uid = stored.metadata["uid"]
        for dependent in list(self._dependents.get(uid, {})):
            below = self._core.registry.of_type(dependent.type)
            if below is not None and self._store.get(dependent.type, dependent.namespace, dependent.name):
                await self._forget_owners(below, dependent, {uid})
        await self._drop_finalizer(resource, item, ORPHAN)

    async def _wait_for_dependents(self, resource: Resource, item: Item, stored: Entry) -> None:
        uid = stored.metadata["uid"]
        blocking = [each for each in self._dependents.get(uid, {}) if self._blocks(each, uid)]
        for dependent in blocking:
            self._worker.add(dependent)
        if not blocking:
            await self._drop_finalizer(resource, item, FOREGROUND)

    def _blocks(self, item: Item, uid: str) -> bool:
        stored = self._store.get(item.type, item.namespace, item.name)
        references = (stored.metadata.get("ownerReferences") or ()) if stored else ()
        return any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references)

    async def _forget_owners(self, resource: Resource, item: Item, uids: set[str]) -> None:
        def without(old: Manifest) -> Manifest:
            kept = [each for each in old["metadata"].get("ownerReferences") or () if each["uid"] not in uids]
            return old | {"metadata": old["metadata"] | {"ownerReferences": kept}}

        await updating.update(self._core, resource, item.namespace, item.name, without, OPTIONS)

    async def _drop_finalizer(self, resource: Resource, item: Item, finalizer: str) -> None:
        await drop_finalizer(self._core, resource, item, finalizer)


async def drop_finalizer(
    core: Core, resource: Resource, item: Item, finalizer: str, options: Options = OPTIONS
) -> None:
    """Take one finalizer off an object, which ends it if it was the last."""

    def without(old: Manifest) -> Manifest:
        kept = [each for each in old["metadata"].get("finalizers") or () if each != finalizer]
        return old | {"metadata": old["metadata"] | {"finalizers": kept}}

    await updating.update(core, resource, item.namespace, item.name, without, options)


def _owner_uids(stored: Entry | None) -> set[str]:
    references = (stored.metadata.get("ownerReferences") or ()) if stored else ()
    return {each["uid"] for each in references}

"""Deletes the objects of a terminating namespace or CustomResourceDefinition, then the object itself."""

from __future__ import annotations

from dataclasses import replace

from elasticjob.devcluster.server.controllers.collector import OPTIONS, Item, drop_finalizer, item_of
from elasticjob.devcluster.server.crd.crd import CLEANUP, CRDS
from elasticjob.devcluster.server.model.asking import NAMESPACES, Deletion
from elasticjob.devcluster.server.model.store import Entry, Event, Manifest, Type
from elasticjob.devcluster.server.model.worker import Worker
from elasticjob.devcluster.server.write import deleting, updating
from elasticjob.devcluster.server.write.core import Core


class Cleanup:
    """Follows the store; works on namespaces and definitions that carry a deletion mark."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = core.store
        self._options = replace(OPTIONS, manager="namespace-controller")
        self._worker = Worker(self._handle)
        self._store.listen(self._follow)

    async def run(self) -> None:
        await self._worker.run()

    def _follow(self, type_: Type, event: Event) -> None:
        if type_ in (NAMESPACES, CRDS):
            if event.change != "DELETED" and event.new.metadata.get("deletionTimestamp"):
                self._worker.add(item_of(type_, event.new))
        elif event.change == "DELETED":
            self._look_at(NAMESPACES, event.new.metadata.get("namespace", ""))
            self._look_at(CRDS, f"{type_.plural}.{type_.group}")

    def _look_at(self, type_: Type, name: str) -> None:
        found = self._store.get(type_, "", name)
        if found is not None and found.metadata.get("deletionTimestamp"):
            self._worker.add(Item(type_, "", name))

    async def _handle(self, item: Item) -> None:
        stored = self._store.get(item.type, "", item.name)
        if stored is None or not stored.metadata.get("deletionTimestamp"):
            return
        contents = self._contents(item, stored)
        for type_, each in contents:
            if not each.metadata.get("deletionTimestamp"):
                await self._delete(type_, each)
        if not self._contents(item, stored):
            await self._end(item)

    def _contents(self, item: Item, stored: Entry) -> list[tuple[Type, Entry]]:
        if item.type == CRDS:
            spec = stored.body["spec"]
            type_ = Type(spec["group"], spec["names"]["plural"])
            return [(type_, each) for each in self._store.every(type_)]
        return [
            (type_, each) for type_ in self._store.types() for each in self._store.every(type_, item.name)
        ]

    async def _delete(self, type_: Type, stored: Entry) -> None:
        resource = self._core.registry.of_type(type_)
        item = item_of(type_, stored)
        if resource is not None and self._store.get(type_, item.namespace, item.name) is not None:
            deletion = Deletion(propagation="Background", uid=stored.metadata["uid"])
            await deleting.delete(self._core, resource, item.namespace, item.name, deletion, self._options)

    async def _end(self, item: Item) -> None:
        resource = self._core.registry.of_type(item.type)
        assert resource is not None, "namespaces and definitions are always served"
        if item.type == CRDS:
            await drop_finalizer(self._core, resource, item, CLEANUP)
            return

        def emptied(old: Manifest) -> Manifest:
            return old | {"spec": {"finalizers": []}}

        await updating.update(
            self._core, resource, "", item.name, emptied, self._options, subresource="finalize"
        )

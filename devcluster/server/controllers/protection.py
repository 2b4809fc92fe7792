"""PVC protection: a deleted PersistentVolumeClaim stays until no pod on a node uses it."""

from __future__ import annotations

from dataclasses import replace

from elasticjob.devcluster.server.controllers.collector import OPTIONS, Item, drop_finalizer, item_of
from elasticjob.devcluster.server.kinds.kinds import PROTECTION
from elasticjob.devcluster.server.model.store import Event, Manifest, Type
from elasticjob.devcluster.server.model.worker import Worker
from elasticjob.devcluster.server.write.core import Core

_CLAIMS, _PODS = Type("", "persistentvolumeclaims"), Type("", "pods")
_OPTIONS = replace(OPTIONS, manager="pvc-protection-controller")


class Protection:
    """Follows the store; lets go of claims that carry a deletion mark."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = core.store
        self._worker = Worker(self._handle)
        self._store.listen(self._follow)

    async def run(self) -> None:
        await self._worker.run()

    def _follow(self, type_: Type, event: Event) -> None:
        if type_ == _CLAIMS:
            self._worker.add(item_of(type_, event.new))
        elif type_ == _PODS and event.change == "DELETED":
            for name in claims_of(event.new.body):
                self._worker.add(Item(_CLAIMS, event.new.metadata["namespace"], name))

    async def _handle(self, item: Item) -> None:
        claim = self._store.get(item.type, item.namespace, item.name)
        if claim is None or not claim.metadata.get("deletionTimestamp"):
            return
        if PROTECTION not in (claim.metadata.get("finalizers") or ()) or self._is_used(item):
            return
        resource = self._core.registry.of_type(_CLAIMS)
        assert resource is not None, "claims are always served"
        await drop_finalizer(self._core, resource, item, PROTECTION, _OPTIONS)

    def _is_used(self, item: Item) -> bool:
        """Whether a pod on a node uses the claim; an unscheduled pod cannot start any more."""
        pods = (pod.body for pod in self._store.every(_PODS, item.namespace))
        return any(item.name in claims_of(pod) for pod in pods if pod["spec"].get("nodeName"))


def claims_of(pod: Manifest) -> list[str]:
    """The names of the claims that a pod's volumes are."""
    volumes = pod["spec"].get("volumes") or ()
    return [
        each["persistentVolumeClaim"]["claimName"] for each in volumes if each.get("persistentVolumeClaim")
    ]

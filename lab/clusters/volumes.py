"""Claims on a real control plane: each gets a volume that the controller-manager binds to it."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import PERSISTENT_VOLUME_CLAIM, Object, PersistentVolumeClaim
from elasticjob.kube.operator.operator import Operator

PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", Object, namespaced=False)
MANAGER = "devcluster-volumes"


class Volumes:
    """A provisioner. The volume's own path is not used: the nodes keep a folder for each claim."""

    def __init__(self, client: Client, claims: Cache[PersistentVolumeClaim]) -> None:
        self._client, self._claims = client, claims

    async def reconcile(self, key: Key) -> Result:
        """One claim has its volume."""
        claim = self._claims.get(key)
        if claim is not None and claim.status.get("phase") == "Pending":
            await self._client.apply(PERSISTENT_VOLUME, volume(claim), manager=MANAGER)
        return Result.done()


def volumes(operator: Operator) -> Sequence[Controller]:
    """The provisioner as a controller of `operator`."""
    made = Volumes(operator.client, operator.cache(PERSISTENT_VOLUME_CLAIM))
    return (Controller("volumes", made.reconcile, for_=PERSISTENT_VOLUME_CLAIM),)


def volume(claim: PersistentVolumeClaim) -> Manifest:
    """A volume that only this claim may have."""
    about = claim.metadata
    spec = {
        "capacity": claim.spec["resources"]["requests"],
        "accessModes": claim.spec["accessModes"],
        "hostPath": {"path": f"/nowhere/{about.uid}"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": claim.spec.get("storageClassName", ""),
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
    }
    return {"metadata": {"name": f"pvc-{about.uid}"}, "spec": spec}

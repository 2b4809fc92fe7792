"""PersistentVolumeClaims: bound as soon as they exist; the kubelet keeps a folder for each."""

from __future__ import annotations

from elasticjob.kube.cache import Cache
from elasticjob.kube.client import Client
from elasticjob.kube.controller import Controller, Result
from elasticjob.kube.kinds import Key, Manifest
from elasticjob.kube.objects import PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim


class Claims:
    """Says of every claim that it is bound."""

    def __init__(self, client: Client, claims: Cache[PersistentVolumeClaim]) -> None:
        self._client, self._claims = client, claims

    def controller(self) -> Controller:
        return Controller("claims", self.reconcile, for_=PERSISTENT_VOLUME_CLAIM)

    async def reconcile(self, key: Key) -> Result:
        """One claim is Bound, with the capacity and the access modes that it asks for."""
        claim = self._claims.get(key)
        if claim is None or claim.status.get("phase") == "Bound":
            return Result.done()
        patch = {"status": bound(claim.spec)}
        await self._client.merge_patch(
            PERSISTENT_VOLUME_CLAIM, key.name, patch, key.namespace, subresource="status"
        )
        return Result.done()


def bound(spec: Manifest) -> Manifest:
    """The status of a claim with this spec."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    return {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": requests}

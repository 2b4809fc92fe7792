"""PersistentVolumeClaims: bound as soon as they exist, each a folder that is deleted with it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim


class Claims:
    """Marks every claim as bound; deletes the folder of a claim that was seen and is deleted.

    Folders of an earlier run whose claims are not created again are kept.
    """

    def __init__(self, client: Client, claims: Cache[PersistentVolumeClaim], folder: Path) -> None:
        self._client, self._claims, self._folder = client, claims, folder

    def controller(self) -> Controller:
        return Controller("claims", self.reconcile, for_=PERSISTENT_VOLUME_CLAIM)

    async def reconcile(self, key: Key) -> Result:
        """A claim is Bound, with the capacity and the access modes that it asks for."""
        claim = self._claims.get(key)
        if claim is None:
            await asyncio.to_thread(
                shutil.rmtree, self._folder / key.namespace / key.name, ignore_errors=True
            )
            return Result.done()
        if claim.status.get("phase") == "Bound":
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

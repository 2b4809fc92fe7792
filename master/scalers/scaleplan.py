"""The scaler of jobs on a cluster: each change is a ScalePlan, which the operator carries out."""

from __future__ import annotations

from elasticjob.api.sizes.change import Change
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, plan_manifest
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists, KubeError
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.master.scalers.scaler import ScalerError

PLAIN = SCALEPLAN.untyped()


class ScalePlanScaler:
    """Writes ScalePlans of one job; with it they go."""

    def __init__(self, client: Client, job: ElasticJob) -> None:
        self._client, self._job = client, Key(job.metadata.namespace, job.metadata.name)
        self._owner = owner_reference(job, ELASTICJOB, controller=False)

    async def apply(self, key: str, change: Change) -> None:
        """Create the plan; it exists already if this change was recorded before."""
        try:
            await self._client.create(PLAIN, manifest(self._job, key, change, self._owner))
        except AlreadyExists:
            return
        except KubeError as error:
            raise ScalerError(f"ScalePlan {key} is not written: {error}") from error


def manifest(job: Key, key: str, change: Change, owner: Manifest | None = None) -> Manifest:
    """Return the ScalePlan of a change; `owner` is the reference to its job."""
    return plan_manifest(key, job, change.manifest(), owner, manual=False)

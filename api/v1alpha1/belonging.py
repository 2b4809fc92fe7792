"""Which job a pod belongs to, by its owner: labels may be anybody's."""

from __future__ import annotations

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.kube.objects.views import Pod


def belongs(pod: Pod, job: str) -> bool:
    """Whether a pod was made for the job of this name."""
    kinds = (ELASTICJOB.name, JOBRESOURCE.name)
    owners = pod.metadata.owner_references
    return any(each.controller and each.kind in kinds and each.name == job for each in owners)

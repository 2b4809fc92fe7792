"""PyTorch: defaults for torchrun's flags, so that plain `torchrun train.py` finds the job's rendezvous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticjob.api.roles import PS
from elasticjob.api.v1alpha1.elasticjob import DistributionStrategy, ElasticJob, ElasticJobSpec
from elasticjob.kube.objects.problem import Problem


def environment(job: ElasticJob, role: str, index: int) -> Mapping[str, str]:
    """Return torchrun's flags as it reads them from the environment: PET_ and the flag's name."""
    if not job.spec.needs_master or role not in job.spec.roles:
        return {}
    world = job.spec.range_of(role)
    return {
        "PET_NNODES": f"{world.smallest}:{max(world.largest or 0, world.smallest)}",
        "PET_RDZV_BACKEND": "elasticjob",
        "PET_RDZV_ENDPOINT": "$(ELASTICJOB_MASTER)",
        "PET_RDZV_ID": job.metadata.name,
    }


def check(spec: ElasticJobSpec) -> Sequence[Problem]:
    """Return what is missing for a job to train."""
    if spec.distribution_strategy is DistributionStrategy.PARAMETER_SERVER and PS not in spec.roles:
        message = "ParameterServerStrategy needs the role ps: add it, or use AllreduceStrategy"
        return (Problem("spec.distributionStrategy", message),)
    return ()

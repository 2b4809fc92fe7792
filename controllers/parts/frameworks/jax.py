"""JAX: a warm process that has imported JAX. The agents form the worlds; scripts need no variable of JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticjob.api.roles import PS
from elasticjob.api.rpc.environment import MODULES
from elasticjob.api.v1alpha1.elasticjob import DistributionStrategy, ElasticJob, ElasticJobSpec
from elasticjob.kube.objects.problem import Problem


def environment(job: ElasticJob, role: str, index: int) -> Mapping[str, str]:
    """Return what the agent imports once for its workers."""
    return {MODULES: "jax,jax.numpy"} if role in job.spec.roles else {}


def check(spec: ElasticJobSpec) -> Sequence[Problem]:
    """Refuse parameter servers: workers of JAX add up what they have computed among themselves."""
    if spec.distribution_strategy is DistributionStrategy.PARAMETER_SERVER:
        message = "JAX trains by AllreduceStrategy: use it, or leave out the framework's annotation"
        return (Problem("spec.distributionStrategy", message),)
    if PS in spec.roles:
        message = "JAX has no parameter servers: leave out the role ps, or the framework's annotation"
        return (Problem("spec.replicaSpecs.ps", message),)
    return ()

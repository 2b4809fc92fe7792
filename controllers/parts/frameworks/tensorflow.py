"""TensorFlow: TF_CONFIG for scripts that read it, and a warm process that has imported TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from elasticjob.api.roles import CHIEF, EVALUATOR, PS, WORKER
from elasticjob.api.rpc.environment import MODULES
from elasticjob.api.v1alpha1.elasticjob import DistributionStrategy, ElasticJob, ElasticJobSpec
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.frameworks import pytorch
from elasticjob.kube.objects.problem import Problem

PORT: Final = 2222
"""Where scripts that read TF_CONFIG listen, in every pod."""
TASKS: Final = (CHIEF, PS, WORKER, EVALUATOR)
"""Roles that TensorFlow knows."""


def environment(job: ElasticJob, role: str, index: int) -> Mapping[str, str]:
    """Return what the agent imports, and the cluster as it begins: TF_CONFIG.

    A process reads TF_CONFIG once, so it is wrong after the first change of servers or workers. It is for
    scripts that bring a cluster of a fixed size; `elasticjob.trainer.tensorflow` asks the master instead.
    """
    if role not in TASKS or role not in job.spec.roles:
        return {MODULES: "tensorflow"}
    return {MODULES: "tensorflow", "TF_CONFIG": json.dumps(_config(job, role, index))}


def check(spec: ElasticJobSpec) -> Sequence[Problem]:
    """Return what TensorFlow cannot run, or could not run elastically."""
    if PS in spec.roles and spec.distribution_strategy is not DistributionStrategy.PARAMETER_SERVER:
        message = (
            f"TensorFlow's role ps needs {DistributionStrategy.PARAMETER_SERVER}, which is not"
            f" {spec.distribution_strategy}: write it, or leave out the role"
        )
        return (Problem("spec.distributionStrategy", message),)
    return pytorch.check(spec)


def _config(job: ElasticJob, role: str, index: int) -> Mapping[str, object]:
    """Return the cluster, and the place of one task in it: without a role chief, the first worker is it.

    An evaluator is in no cluster. A node beyond the size of its role came with a change: it is there, too.
    """
    own = {role: index + 1}
    cluster = {
        each: [
            _address(job, each, place) for place in range(max(job.spec.roles[each].initial, own.get(each, 0)))
        ]
        for each in TASKS
        if each in job.spec.roles and each != EVALUATOR
    }
    if CHIEF in cluster or WORKER not in cluster:
        return {"cluster": cluster, "task": {"type": role, "index": index}}
    first, *others = cluster[WORKER]
    task = (CHIEF, 0) if (role, index) == (WORKER, 0) else (role, index - (role == WORKER))
    return {
        "cluster": {**cluster, CHIEF: [first], WORKER: others},
        "task": {"type": task[0], "index": task[1]},
    }


def _address(job: ElasticJob, role: str, index: int) -> str:
    """Return where a node listens: a server keeps its name for life, other nodes until they are replaced."""
    return f"{names.hostname(job.metadata.name, role, index, 0)}.{job.metadata.name}:{PORT}"

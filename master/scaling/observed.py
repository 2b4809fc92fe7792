"""What objects of the cluster say about the size of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from msgspec import structs

from elasticjob.api.v1alpha1.common import PS
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.api.v1alpha1.sizing import facts_of, placement_of
from elasticjob.master.state.scaling import Mode, Placed, Role, Wish, key

MEMORY: Final = "-memory"
"""The end of the name of the operator's plan for a pod that was out of memory."""


def wish_of(job: ElasticJob) -> Wish:
    """Return what the user says about sizes."""
    said = facts_of(job)
    mode = Mode(job.spec.optimize_mode.value)
    return Wish(
        mark=hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:8],
        strategy=said.strategy,
        mode=mode,
        roles={name: Role(**structs.asdict(each)) for name, each in said.roles.items()},
        limits=said.limits,
    )


def placed_of(
    resource: JobResource | None, plans: Iterable[ScalePlan], job: str = "", mark: str = ""
) -> Placed:
    """Return what should run now, and what plans tell; the master's own have names that `plan.key` makes."""
    plans = tuple(plans)
    unfinished = (plan for plan in plans if not (plan.status.phase and plan.status.phase.finished))
    names = tuple(sorted(plan.metadata.name for plan in unfinished))
    prefix = key(job, mark, 1).removesuffix("1")
    own = [plan for plan in plans if plan.metadata.name.startswith(prefix)]
    times = (plan.metadata.creation_timestamp for plan in own)
    newest = max((at for at in times if at), default=None)
    finished = {plan.metadata.name for plan in plans}.difference(names)
    told = Placed(
        open=names,
        begun=key(job, mark, 0) in {plan.metadata.name for plan in plans},
        number=max((_number(plan.metadata.name) for plan in own), default=0),
        planned=newest,
        killed=tuple(sorted(name.removesuffix(MEMORY) for name in finished if name.endswith(MEMORY))),
    )
    if resource is None:
        return told
    servers = resource.spec.replica_resource_specs.get(PS)
    return told.but(
        servers=servers.indices if servers and servers.replicas is not None else None,
        **structs.asdict(placement_of(resource)),
    )


def _number(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0

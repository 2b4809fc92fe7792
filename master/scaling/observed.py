"""What objects of the cluster say about the size of a job."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from elasticjob.api.roles import PS
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.api.v1alpha1.sizing import placement_of
from elasticjob.master.state.scaling import Target, key


def placed_of(
    resource: JobResource | None, plans: Iterable[ScalePlan], job: str = "", mark: str = ""
) -> Target:
    """Return what should run now, and what plans tell; the master's own have names that `plan.key` makes."""
    plans = tuple(plans)
    unfinished = (plan for plan in plans if not (plan.status.phase and plan.status.phase.is_terminal))
    names = tuple(sorted(plan.metadata.name for plan in unfinished))
    prefix = key(job, mark, 1).removesuffix("1")
    own = [plan for plan in plans if plan.metadata.name.startswith(prefix)]
    times = (plan.metadata.creation_timestamp for plan in own)
    newest = max((at for at in times if at), default=None)
    told = Target(
        open=names,
        begun=key(job, mark, 0) in {plan.metadata.name for plan in plans},
        number=max((_number(plan.metadata.name) for plan in own), default=0),
        planned=newest,
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

"""What objects of the cluster say about the size of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from elasticjob.api.resources import pod_requests
from elasticjob.api.v1alpha1.common import PS, WORKER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.master.scaling.state import Mode, Placed, Role, Wish, key

MEMORY: Final = "-memory"
"""The end of the name of the operator's plan for a pod that was out of memory."""


def wish_of(job: ElasticJob) -> Wish:
    """Return what the user says about sizes."""
    roles = {role: _role(job, role) for role in job.spec.roles}
    limits = {name: str(amount) for name, amount in job.spec.resource_limits.items()}
    mode = Mode(job.spec.optimize_mode.value)
    return Wish(
        mark=hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:8],
        strategy=job.spec.distribution_strategy.value,
        mode=mode,
        roles=roles,
        limits=limits,
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
    specs = resource.spec.replica_resource_specs
    status = resource.status
    return told.but(
        servers=specs[PS].indices if PS in specs and specs[PS].replicas is not None else None,
        room=dict(status.room) if status.room else None,
        machine=_text(status.machine) if status.machine else None,
        sizes={role: spec.replicas for role, spec in specs.items() if spec.replicas is not None},
        resources={role: _text(spec.resource) for role, spec in specs.items() if spec.resource},
        nodes={node.name: _text(node.resource) for node in resource.spec.nodes},
    )


def _number(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _role(job: ElasticJob, role: str) -> Role:
    spec = job.spec.roles[role]
    return Role(
        count=spec.replicas,
        least=spec.bounds.least,
        most=spec.bounds.most,
        unit=job.spec.node_unit if role == WORKER else 1,
        auto=spec.auto_scale,
        resource=pod_requests(spec.pod).manifest(),
    )


def _text(amounts: object) -> dict[str, str]:
    assert isinstance(amounts, dict)
    return {name: str(amount) for name, amount in amounts.items()}

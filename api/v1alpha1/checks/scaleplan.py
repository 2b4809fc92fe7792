"""Validation of a ScalePlan against its job.

A plan is checked once, when it is created: its spec is immutable, while its job may change later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from elasticjob.api.resources import MalformedQuantity, Resources, pod_requests
from elasticjob.api.roles import is_master
from elasticjob.api.v1alpha1.checks.common import (
    duplicate_problems,
    name_problems,
    node,
    node_problems,
    parse_amounts,
    resource_name_problems,
    resource_problems,
)
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.placing import with_resource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.kube.objects.problem import Problem

Check = Callable[[ScalePlan], Iterable[Problem]]
CheckWithJob = Callable[[ScalePlan, ElasticJob], Iterable[Problem]]


def problems(new: ScalePlan, old: ScalePlan | None = None, *, job: ElasticJob | None) -> list[Problem]:
    """Return the errors of a plan that is created for `job` (None: not found), or updated from `old`."""
    if old is not None:
        return [] if new.spec == old.spec or new.metadata.deletion_timestamp is not None else [UNCHANGEABLE]
    found = [problem for check in CHECKS for problem in check(new)]
    if job is None:
        where = new.metadata.namespace or "this namespace"
        message = (
            f"there is no ElasticJob {new.spec.owner_job!r} in {where}: create it first, or correct the name"
        )
        return [*found, Problem("spec.ownerJob", message)]
    return found + [problem for check in CHECKS_WITH_JOB for problem in check(new, job)]


UNCHANGEABLE: Final = Problem(
    "spec", "the spec of a ScalePlan cannot change: create another plan, which supersedes this one"
)


def the_job_has_a_name(plan: ScalePlan) -> Iterator[Problem]:
    """ownerJob is a valid ElasticJob name."""
    return name_problems("spec.ownerJob", plan.spec.owner_job)


def something_changes(plan: ScalePlan) -> Iterator[Problem]:
    """A plan must change something."""
    spec = plan.spec
    if not (
        spec.replica_resource_specs
        or spec.create_pods
        or spec.remove_pods
        or spec.migrate_pods
        or spec.ps_hosts
    ):
        yield Problem("spec", "the plan changes nothing: write replicaResourceSpecs, migratePods or the like")


def both_spellings_say_the_same(plan: ScalePlan) -> Iterator[Problem]:
    """replicaResourceSpec is an older spelling of replicaResourceSpecs."""
    older = plan.spec.replica_resource_spec
    if older and older != plan.spec.replica_resource_specs:
        yield Problem(
            "spec.replicaResourceSpec",
            "it differs from spec.replicaResourceSpecs, which decides: leave spec.replicaResourceSpec out",
        )


def quantities_are_amounts(plan: ScalePlan) -> Iterator[Problem]:
    """All quantities parse, none is negative, and pods may have the resources."""
    roles, spec = plan.spec.replica_resource_specs, plan.spec
    given = {f"replicaResourceSpecs[{role}]": one.resource for role, one in roles.items()}
    given |= {f"createPods[{index}]": one.resource for index, one in enumerate(spec.create_pods)}
    given |= {f"migratePods[{index}]": one.resource for index, one in enumerate(spec.migrate_pods)}
    for field, resource in given.items():
        yield from resource_problems(f"spec.{field}.resource", resource)
        yield from resource_name_problems(f"spec.{field}.resource", resource)


def no_pod_is_named_twice(plan: ScalePlan) -> Iterator[Problem]:
    """A pod is in only one of the lists."""
    spec = plan.spec
    yield from duplicate_problems("spec.createPods", (pod.name for pod in spec.create_pods))
    yield from duplicate_problems("spec.removePods", (pod.name for pod in spec.remove_pods))
    yield from duplicate_problems("spec.migratePods", (one.name for one in spec.migrate_pods))
    elsewhere = {pod.name for pod in spec.create_pods} | {one.name for one in spec.migrate_pods}
    for index, pod in enumerate(spec.remove_pods):
        if pod.name in elsewhere:
            yield Problem(
                f"spec.removePods[{index}]", f"{pod.name} is created or migrated too: write one of them"
            )


CHECKS: Final[tuple[Check, ...]] = (
    the_job_has_a_name,
    something_changes,
    both_spellings_say_the_same,
    quantities_are_amounts,
    no_pod_is_named_twice,
)


def roles_are_the_jobs(plan: ScalePlan, job: ElasticJob) -> Iterator[Problem]:
    """A plan names roles of the job; the master is not scaled."""
    for role in plan.spec.replica_resource_specs:
        if role not in job.spec.roles:
            known = ", ".join(job.spec.roles)
            message = (
                "there is one master, it is not scaled"
                if is_master(role)
                else f"job {job.metadata.name} has no such role"
            )
            yield Problem(f"spec.replicaResourceSpecs[{role}]", f"{message}: write one of {known}")


def sizes_are_allowed(plan: ScalePlan, job: ElasticJob) -> Iterator[Problem]:
    """The new size of a role lies within its bounds in the job."""
    for role, spec in job.spec.roles.items():
        wanted = plan.spec.replica_resource_specs.get(role)
        if wanted is None or wanted.replicas is None:
            continue
        allowed, path = job.spec.range_of(role), f"spec.replicaResourceSpecs[{role}].replicas"
        if not spec.bounds.allows(wanted.replicas):
            yield Problem(
                path,
                f"{wanted.replicas} is outside what job {job.metadata.name} allows, {spec.bounds}: "
                "change the plan, or the job's minReplicas and maxReplicas",
            )
        elif not allowed.allows(wanted.replicas):
            message = f"{wanted.replicas} workers hold no world of nodeUnit {allowed.unit}"
            yield Problem(path, f"{message}: write {allowed.smallest} or more")


def the_limits_hold(plan: ScalePlan, job: ElasticJob) -> Iterator[Problem]:
    """The planned sizes, with the minimum of other roles, fit resourceLimits."""
    limits = parse_amounts(job.spec.resource_limits)
    needs = {role: need_under(plan, job, role) for role in job.spec.roles}
    if limits is None or None in needs.values():
        return
    total = sum((need for need in needs.values() if need is not None), Resources({}))
    for excess in total.over(limits):
        share = ", ".join(
            f"{role} {need[excess.name]}" for role, need in needs.items() if need and need.get(excess.name)
        )
        yield Problem(
            "spec.replicaResourceSpecs",
            f"{excess.name} {excess.wanted} ({share}) is more than the job's resourceLimits, {excess.limit}: "
            "plan less, or raise the limit",
        )


def need_under(plan: ScalePlan, job: ElasticJob, role: str) -> Resources | None:
    """Return the resources of a role under the plan; None if a quantity is malformed."""
    wanted, spec = plan.spec.replica_resource_specs.get(role), job.spec.roles[role]
    range_ = job.spec.range_of(role)
    size = range_.lowest if wanted is None or wanted.replicas is None else range_.clamp(wanted.replicas)
    try:
        each = pod_requests(
            with_resource(spec, {n: str(a) for n, a in wanted.resource.items()} if wanted is not None else {})
        )
    except MalformedQuantity:
        return None
    return each * size


def pods_are_the_jobs(plan: ScalePlan, job: ElasticJob) -> Iterator[Problem]:
    """Every pod belongs to the job, and to the role in its `type`."""
    name, roles, spec = job.metadata.name, tuple(job.spec.roles), plan.spec
    named = (
        ("createPods", [(pod.name, pod.type) for pod in spec.create_pods]),
        ("removePods", [(pod.name, pod.type) for pod in spec.remove_pods]),
        ("migratePods", [(one.name, "") for one in spec.migrate_pods]),
    )
    for field, pods in named:
        for index, (pod, role) in enumerate(pods):
            path = f"spec.{field}[{index}]"
            yield from node_problems(f"{path}.name", pod, name, roles)
            place = node(name, roles, pod)
            if role and place is not None and place.role != role:
                yield Problem(
                    f"{path}.type", f"{pod} is of role {place.role}: write {place.role}, or leave it out"
                )


CHECKS_WITH_JOB: Final[tuple[CheckWithJob, ...]] = (
    roles_are_the_jobs,
    sizes_are_allowed,
    the_limits_hold,
    pods_are_the_jobs,
)

"""Validation of a JobResource.

The JobResource with its job's name is written by our controllers; others are requests from users and tools,
so every check that does not need the job itself is made here. The controller checks that the job exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from elasticjob.api.resources import Raw
from elasticjob.api.roles import EVALUATOR, PS, WORKER
from elasticjob.api.v1alpha1 import requests
from elasticjob.api.v1alpha1.checks.common import (
    duplicate_problems,
    is_label,
    name_problems,
    resource_name_problems,
    resource_problems,
)
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.kube.objects.problem import Problem

Check = Callable[[JobResource], Iterable[Problem]]


def problems(new: JobResource, old: JobResource | None = None) -> list[Problem]:
    """Return the errors of a JobResource that is created, or updated from `old`.

    An update that keeps the spec, or of an object that is being deleted, is always valid.
    """
    if old is not None and (new.spec == old.spec or new.metadata.deletion_timestamp is not None):
        return []
    changed = [] if old is None else list(the_job_stays(old, new))
    changed += pods_may_have_the_resources(new, old)
    return changed + [problem for check in CHECKS for problem in check(new)]


def the_job_stays(old: JobResource, new: JobResource) -> Iterator[Problem]:
    """The selector of a JobResource is immutable."""
    before, now = old.spec.selector.name, new.spec.selector.name
    if before != now:
        yield Problem(
            "spec.selector.name", f"it cannot change from {before} to {now}: create another JobResource"
        )


def the_job_has_a_name(resource: JobResource) -> Iterator[Problem]:
    """The selector is a valid ElasticJob name."""
    return name_problems("spec.selector.name", resource.spec.selector.name)


def roles_are_labels(resource: JobResource) -> Iterator[Problem]:
    """Roles are valid role names."""
    for role in resource.spec.replica_resource_specs:
        if not is_label(role):
            yield Problem(
                f"spec.replicaResourceSpecs[{role}]", f"{role!r} is not a role: write one of the job's roles"
            )


def quantities_are_amounts(resource: JobResource) -> Iterator[Problem]:
    """All quantities parse, and none is negative; those of the older form by today's names."""
    for path, given in _resources(resource):
        yield from resource_problems(path, given)


def pods_may_have_the_resources(new: JobResource, old: JobResource | None) -> list[Problem]:
    """Names of resources are those of containers; an earlier release may have accepted others."""

    def found(resource: JobResource) -> list[Problem]:
        return [each for path, given in _resources(resource) for each in resource_name_problems(path, given)]

    before = found(old) if old is not None else []
    return [problem for problem in found(new) if problem not in before]


def _resources(resource: JobResource) -> Iterator[tuple[str, Mapping[str, Raw]]]:
    """The path and the amounts of each resource that is given."""
    spec = resource.spec
    older = {OLDER_FIELDS[role]: one.resource for role, one in requests.older(spec)}
    older |= {f"resource_updation[{at}]": one.resource for at, one in enumerate(spec.resource_updation)}
    given = {field: requests.amounts(each) for field, each in older.items()}
    given |= {f"replicaResourceSpecs[{r}]": one.resource for r, one in spec.replica_resource_specs.items()}
    given |= {f"nodes[{index}]": one.resource for index, one in enumerate(spec.nodes)}
    return ((f"spec.{field}.resource", each) for field, each in given.items())


def nodes_are_of_the_job(resource: JobResource) -> Iterator[Problem]:
    """Each entry of `nodes` names a node of this job, once."""
    job = resource.spec.selector.name
    for field, nodes in (
        ("nodes", resource.spec.nodes),
        ("resource_updation", resource.spec.resource_updation),
    ):
        for index, one in enumerate(nodes):
            if re.fullmatch(rf"{re.escape(job)}-[-a-z0-9]+-\d+", one.name) is None:
                message = f"{one.name!r} is not a node of job {job}: write {job}-<role>-<index>"
                yield Problem(f"spec.{field}[{index}].name", message)
        yield from duplicate_problems(f"spec.{field}", (one.name for one in nodes))


def the_older_form_is_a_request(resource: JobResource) -> Iterator[Problem]:
    """The JobResource with the job's name is the operator's, which writes today's form."""
    for field, newer in _older(resource):
        if not requests.is_request(resource):
            message = f"the job's own JobResource has its name: write spec.{newer}, or name this differently"
            yield Problem(f"spec.{field}", message)


def a_request_has_one_form(resource: JobResource) -> Iterator[Problem]:
    """The older and the newer field of the same thing may differ, and neither is the newer word."""
    for field, newer in _older(resource):
        role = newer.removeprefix("replicaResourceSpecs[").removesuffix("]")
        if role in resource.spec.replica_resource_specs or (newer == "nodes" and resource.spec.nodes):
            yield Problem(f"spec.{field}", f"spec.{newer} is about the same: leave one of them out")


def _older(resource: JobResource) -> Iterator[tuple[str, str]]:
    """The fields of the older form that are given, and those that they stand for."""
    for role, _ in requests.older(resource.spec):
        yield OLDER_FIELDS[role], f"replicaResourceSpecs[{role}]"
    if resource.spec.resource_updation:
        yield "resource_updation", "nodes"


OLDER_FIELDS: Final = {PS: "parameter_server", WORKER: WORKER, EVALUATOR: EVALUATOR}

CHECKS: Final[tuple[Check, ...]] = (
    the_job_has_a_name,
    roles_are_labels,
    quantities_are_amounts,
    nodes_are_of_the_job,
    the_older_form_is_a_request,
    a_request_has_one_form,
)

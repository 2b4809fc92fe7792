"""Validation of a JobResource.

The JobResource with its job's name is written by our controllers; others are requests from users and tools,
so every check that does not need the job itself is made here. The controller checks that the job exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from elasticjob.api.v1alpha1.checks.common import (
    duplicate_problems,
    is_label,
    name_problems,
    resource_problems,
)
from elasticjob.api.v1alpha1.common import EVALUATOR, PS, WORKER
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
    """All quantities parse, and none is negative."""
    for role, spec in resource.spec.replica_resource_specs.items():
        yield from resource_problems(f"spec.replicaResourceSpecs[{role}].resource", spec.resource)
    for index, one in enumerate(resource.spec.nodes):
        yield from resource_problems(f"spec.nodes[{index}].resource", one.resource)


def nodes_are_of_the_job(resource: JobResource) -> Iterator[Problem]:
    """Each entry of `nodes` names a node of this job, once."""
    job = resource.spec.selector.name
    for index, one in enumerate(resource.spec.nodes):
        if re.fullmatch(rf"{re.escape(job)}-[-a-z0-9]+-\d+", one.name) is None:
            message = f"{one.name!r} is not a node of job {job}: write {job}-<role>-<index>"
            yield Problem(f"spec.nodes[{index}].name", message)
    yield from duplicate_problems("spec.nodes", (one.name for one in resource.spec.nodes))


def the_older_form_is_rewritten(resource: JobResource) -> Iterator[Problem]:
    """The EasyDL fields are not implemented: refuse them instead of ignoring them."""
    for field, attribute, newer in OLDER_FORM:
        if getattr(resource.spec, attribute):
            message = f"the older (EasyDL) form cannot be carried out yet: write spec.{newer}"
            yield Problem(f"spec.{field}", message)


OLDER_FORM: Final = (
    ("parameter_server", "parameter_server", f"replicaResourceSpecs[{PS}]"),
    (WORKER, "worker", f"replicaResourceSpecs[{WORKER}]"),
    (EVALUATOR, "evaluator", f"replicaResourceSpecs[{EVALUATOR}]"),
    ("resource_updation", "resource_updation", "nodes"),
)

CHECKS: Final[tuple[Check, ...]] = (
    the_job_has_a_name,
    roles_are_labels,
    quantities_are_amounts,
    nodes_are_of_the_job,
    the_older_form_is_rewritten,
)

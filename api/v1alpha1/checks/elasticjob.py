"""Validation of an ElasticJob.

Roles of each strategy:

    AllreduceStrategy         worker, and custom roles; not ps and chief
    ParameterServerStrategy   ps, and worker or chief; at most one chief and one evaluator
    CustomStrategy, Local     one or more custom roles

All but Local may have dlrover-master (or master): the template of the master.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Final

from elasticjob.api.resources import MalformedQuantity, Resources, pod_requests
from elasticjob.api.roles import CHIEF, EVALUATOR, MASTER, MASTER_ALIAS, PS, WORKER, is_master
from elasticjob.api.v1alpha1.checks.changes import CHANGES, the_queue_stays
from elasticjob.api.v1alpha1.checks.common import (
    DNS_LABEL_OF_A_SERVICE,
    LONGEST_NAME,
    is_controller,
    is_label,
    parse_amounts,
    resource_name_problems,
    resource_problems,
)
from elasticjob.api.v1alpha1.checks.templates import (
    templates_can_run,
    templates_have_their_shape,
    what_the_server_would_refuse_later,
)
from elasticjob.api.v1alpha1.checks.times import times_are_bounded
from elasticjob.api.v1alpha1.common import OPERATOR
from elasticjob.api.v1alpha1.elasticjob import (
    DistributionStrategy,
    ElasticJob,
    Gang,
    OlderRole,
    ReplicaSpec,
    SuccessPolicy,
)
from elasticjob.api.v1alpha1.gangs import ANY, OFFERS, PRIORITIES, needs
from elasticjob.api.v1alpha1.kueue import unreadable_limit
from elasticjob.api.v1alpha1.older import OLDER_ROLES, command_words, older_container
from elasticjob.api.v1alpha1.priorities import is_share
from elasticjob.kube.objects.problem import Problem

Check = Callable[[ElasticJob], Iterable[Problem]]
MOST_PROBLEMS: Final = 100
"""A template of 3 MB may have so many that finding them all takes half a minute."""


def problems(new: ElasticJob, old: ElasticJob | None = None) -> list[Problem]:
    """Return the errors of a job that is created, or updated from `old`, the first hundred.

    An update that keeps spec and queue, or of a job that is being deleted, is always valid, so that a job
    accepted by an earlier release can still be labelled, finalized and deleted.
    """
    if old is not None and new.metadata.deletion_timestamp is not None:
        return []
    moved = [*(the_queue_stays(old, new) if old is not None else ()), *unreadable_limit(old, new)]
    if old is not None and new.spec == old.spec:
        return moved
    misshapen = list(islice(templates_have_their_shape(new), MOST_PROBLEMS))
    return misshapen or [*moved, *islice(_of_a_well_shaped(new, old), MOST_PROBLEMS)]


def _of_a_well_shaped(new: ElasticJob, old: ElasticJob | None) -> Iterator[Problem]:
    if old is not None:
        for change in CHANGES:
            yield from change(old, new)
    for check in CHECKS:
        yield from check(new)
    yield from the_older_form_says_the_same(new, old)
    yield from times_are_bounded(new, old)
    yield from what_the_server_would_refuse_later(new, old)
    yield from what_the_job_itself_names(new, old)


def the_name_leaves_room(job: ElasticJob) -> Iterator[Problem]:
    """Pod, service and host names contain the job's name; the longest of them must be a valid DNS label."""
    name = job.metadata.name
    if not name:  # generateName: the server adds five letters, and the final name is checked again
        return
    if DNS_LABEL_OF_A_SERVICE.fullmatch(name) is None:
        yield Problem(
            "metadata.name",
            f"{name!r} cannot name services: write small letters, digits and inner dashes, a letter first",
        )
    suffix = max((longest_suffix(role, spec) for role, spec in job.spec.roles.items()), default="", key=len)
    suffix = max(suffix, "-master-state", key=len)
    if len(name) + len(suffix) > LONGEST_NAME:
        yield Problem(
            "metadata.name",
            f"{len(name)} characters are too many: {name}{suffix} would have more than {LONGEST_NAME}; "
            f"write at most {max(LONGEST_NAME - len(suffix), 1)}",
        )


def longest_suffix(role: str, spec: ReplicaSpec) -> str:
    """Return the longest suffix that a role adds to the job's name: -<role>-<index>-<relaunch>."""
    last = max((spec.bounds.most or 1000) - 1, 0)
    return f"-{role}-{last}-999"


def there_is_a_role(job: ElasticJob) -> Iterator[Problem]:
    """A job has at least one role."""
    if not job.spec.roles and not older_form(job):
        yield Problem(
            "spec.replicaSpecs", "there is no role to run: write one, such as worker, with its template"
        )


def older_form(job: ElasticJob) -> list[tuple[str, str, OlderRole]]:
    """Return the fields of the EasyDL form that a job has, the role of each, and what it says."""
    spec = job.spec
    given = {
        "parameter_server": spec.parameter_server,
        "parameterServer": spec.parameter_server_in_camel_case,
        WORKER: spec.worker,
        EVALUATOR: spec.evaluator,
    }
    return [(field, role, older) for field, role in OLDER_ROLES if (older := given[field]) is not None]


def the_older_form_says_the_same(job: ElasticJob, old: ElasticJob | None = None) -> Iterator[Problem]:
    """A role that has a template of its own decides; the EasyDL form may only say the same."""
    before = older_form(old) if old is not None else []
    fresh = [one for one in older_form(job) if one not in before]
    lines = {f"spec.{field}.command": older.command for field, _, older in fresh}
    if old is None:
        lines["spec.command"] = job.spec.command
    for path, line in lines.items():
        if command_words(line) is None:
            yield Problem(path, f"{line!r} opens a quotation that it does not close: close it")
    for field, role, older in fresh:
        spec = job.spec.replica_specs.get(role)
        main = (spec.main_container if spec is not None else None) or {}
        if not older_container(older.manifest()).items() <= main.items():
            yield Problem(
                f"spec.{field}",
                f"it differs from spec.replicaSpecs[{role}], which decides: leave spec.{field} out",
            )


def role_names_are_labels(job: ElasticJob) -> Iterator[Problem]:
    """Role names are part of pod names, where a number at the end would be read as an index."""
    for role in job.spec.replica_specs:
        path = f"spec.replicaSpecs[{role}]"
        if not is_label(role):
            better = re.sub(r"[^a-z0-9-]+", "-", role.lower()).strip("-") or WORKER
            yield Problem(
                path, f"{role!r} is not a role name: write small letters, digits and dashes: {better}"
            )
        elif re.search(r"(^|-)\d+$", role):
            yield Problem(
                path, f"role name {role!r} ends in a number, as pod names do: write {role}th or the like"
            )
    if MASTER in job.spec.replica_specs and MASTER_ALIAS in job.spec.replica_specs:
        yield Problem(
            f"spec.replicaSpecs[{MASTER_ALIAS}]",
            f"{MASTER_ALIAS} and {MASTER} are the same role: leave one out",
        )


def the_strategy_has_its_roles(job: ElasticJob) -> Iterator[Problem]:
    """Each strategy needs certain roles, and cannot use others."""
    strategy, roles = job.spec.distribution_strategy, job.spec.replica_specs
    for role, meant in FOREIGN_ROLES.get(strategy, {}).items():
        if role in roles:
            yield Problem(f"spec.replicaSpecs[{role}]", f"{strategy} has no role {role}: {meant}")
    for choices in NEEDED_ROLES.get(strategy, ()):
        if job.spec.roles and not any(role in roles for role in choices):
            yield Problem(f"spec.replicaSpecs[{choices[0]}]", missing_role(strategy, choices, roles))


def missing_role(strategy: str, choices: tuple[str, ...], roles: Iterable[str]) -> str:
    """Return the message for a missing role, with the role that was probably misspelled."""
    near = get_close_matches(choices[0], [role for role in roles if not is_master(role)], 1, 0.6)
    return f"{strategy} needs a role {' or '.join(choices)}" + (
        f": write {choices[0]} for {near[0]}" if near else ""
    )


_USE_PS: Final = f"set distributionStrategy: {DistributionStrategy.PARAMETER_SERVER}, or rename the role"
_NO_MASTER: Final = f"leave it out, or set distributionStrategy: {DistributionStrategy.CUSTOM}"
FOREIGN_ROLES: Final[Mapping[DistributionStrategy, Mapping[str, str]]] = {
    DistributionStrategy.ALLREDUCE: {PS: _USE_PS, CHIEF: _USE_PS},
    DistributionStrategy.LOCAL: {MASTER: _NO_MASTER, MASTER_ALIAS: _NO_MASTER},
}
NEEDED_ROLES: Final[Mapping[DistributionStrategy, tuple[tuple[str, ...], ...]]] = {
    DistributionStrategy.ALLREDUCE: ((WORKER,),),
    DistributionStrategy.PARAMETER_SERVER: ((PS,), (WORKER, CHIEF)),
}


def sizes_are_in_order(job: ElasticJob) -> Iterator[Problem]:
    """0 ≤ minReplicas ≤ replicas ≤ maxReplicas, as far as they are given."""
    for role, spec in job.spec.replica_specs.items():
        path = f"spec.replicaSpecs[{role}]"
        least, size, most = spec.min_replicas, spec.replicas, spec.max_replicas
        if least is not None and most is not None and least > most:
            yield Problem(
                f"{path}.minReplicas", f"{least} is more than maxReplicas {most}: write at most {most}"
            )
        elif size is not None and least is not None and size < least:
            yield Problem(
                f"{path}.replicas", f"{size} is less than minReplicas {least}: write {_between(least, most)}"
            )
        elif size is not None and most is not None and size > most:
            yield Problem(
                f"{path}.replicas", f"{size} is more than maxReplicas {most}: write {_between(least, most)}"
            )


def single_roles_are_single(job: ElasticJob) -> Iterator[Problem]:
    """A job has one master and, with parameter servers, at most one chief and one evaluator."""
    single = [role for role in job.spec.replica_specs if is_master(role)]
    if job.spec.distribution_strategy is DistributionStrategy.PARAMETER_SERVER:
        single += [role for role in (CHIEF, EVALUATOR) if role in job.spec.replica_specs]
    for role in single:
        spec = job.spec.replica_specs[role]
        for field, size in (
            ("replicas", spec.replicas),
            ("minReplicas", spec.min_replicas),
            ("maxReplicas", spec.max_replicas),
        ):
            if size is not None and size > 1:
                yield Problem(
                    f"spec.replicaSpecs[{role}].{field}", f"a job has one {role}: write 1, or leave it out"
                )


def somebody_can_train(job: ElasticJob) -> Iterator[Problem]:
    """A maximum of 0 nodes can never train; `suspend` is the field for that. `replicas: 0` may grow again."""
    for role, spec in job.spec.roles.items():
        if spec.max_replicas == 0:
            yield Problem(
                f"spec.replicaSpecs[{role}].maxReplicas",
                "0 nodes can never train: write 1 or more, or set suspend",
            )


def the_run_policy_names_roles(job: ElasticJob) -> Iterator[Problem]:
    """ChiefOrWorker0 needs one of the two, and rules of the failurePolicy are for roles of the job."""
    policy = job.spec.run_policy
    if (
        policy.success_policy is SuccessPolicy.CHIEF_OR_WORKER_0
        and job.spec.leader is None
        and job.spec.roles
    ):
        yield Problem(
            "spec.runPolicy.successPolicy",
            f"{policy.success_policy} needs a role {CHIEF} or {WORKER}: write {SuccessPolicy.ALL_WORKERS}",
        )
    for index, rule in enumerate(policy.failure_policy.rules):
        for place, role in enumerate(rule.roles):
            if role not in job.spec.roles:
                known = ", ".join(sorted(job.spec.roles))
                path = f"spec.runPolicy.failurePolicy.rules[{index}].roles[{place}]"
                yield Problem(path, f"the job has no role {role!r}: write one of {known}")


def a_world_fits_the_unit(job: ElasticJob) -> Iterator[Problem]:
    """A multiple of nodeUnit must lie within the worker's bounds, and not above its replicas."""
    spec = job.spec.roles.get(WORKER)
    if spec is None or spec.replicas == 0:
        return
    allowed = job.spec.range_of(WORKER)
    if allowed.most is not None and allowed.least > allowed.most:
        return  # a rule of the CRD says so
    if why := allowed.problem("workers"):
        yield Problem("spec.nodeUnit", f"{why}: write a divisor of {allowed.most}, or raise maxReplicas")
    elif spec.replicas is not None and allowed.least <= spec.replicas < allowed.smallest:
        yield Problem(
            f"spec.replicaSpecs[{WORKER}].replicas",
            f"{spec.replicas} workers hold no world of {allowed.unit} or its multiples: write "
            f"{allowed.smallest} or more",
        )


_ENV_NAME: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def envs_are_variables(job: ElasticJob) -> Iterator[Problem]:
    """Names are valid for containers, and each has one value."""
    for name, variable in job.spec.envs.items():
        path = f"spec.envs[{name}]"
        if _ENV_NAME.fullmatch(name) is None:
            yield Problem(
                path, f"{name!r} cannot name a variable: write letters, digits, _ - and ., no digit first"
            )
        if variable.name not in ("", name):
            yield Problem(
                f"{path}.name", f"{variable.name!r} differs from its key: write {name}, or leave it out"
            )
        if variable.value and variable.value_from is not None:
            yield Problem(f"{path}.valueFrom", "value and valueFrom exclude each other: leave one out")


def priorities_are_shares(job: ElasticJob) -> Iterator[Problem]:
    """priority is high, low, or a share above 0 and up to 1."""
    for role, spec in job.spec.replica_specs.items():
        if spec.priority and spec.priority not in ("high", "low") and not is_share(spec.priority):
            yield Problem(
                f"spec.replicaSpecs[{role}].priority",
                f"{spec.priority!r} is no priority: write high, low, or the share of high nodes, such as 0.5",
            )


def the_least_fits_the_limits(job: ElasticJob) -> Iterator[Problem]:
    """The job at its minimum size must fit resourceLimits; otherwise it could never run."""
    yield from resource_problems("spec.resourceLimits", job.spec.resource_limits)
    limits, needs = parse_amounts(job.spec.resource_limits), least_needs(job)
    if limits is None or needs is None:
        return
    total = sum(needs.values(), Resources({}))
    for excess in total.over(limits):
        share = ", ".join(
            f"{role} {need[excess.name]}" for role, need in needs.items() if need.get(excess.name)
        )
        yield Problem(
            f"spec.resourceLimits[{excess.name}]",
            f"{excess.limit} is less than the least sizes need, {excess.wanted} ({share}): raise it, lower "
            "minReplicas, or ask for less per node",
        )


def what_the_job_itself_names(job: ElasticJob, old: ElasticJob | None = None) -> Iterator[Problem]:
    """resourceLimits names resources of containers, and managedBy a controller, as that of a Job does.

    Fields that an update keeps are not checked: an earlier release may have accepted them.
    """
    if old is None or old.spec.resource_limits != job.spec.resource_limits:
        yield from resource_name_problems("spec.resourceLimits", job.spec.resource_limits)
    manager = job.spec.managed_by
    if old is None and manager not in ("", OPERATOR) and not is_controller(manager):
        yield Problem(
            "spec.managedBy",
            f"{manager!r} is not the name of a controller: write a domain and a path, such as "
            "example.org/queue, or leave it out",
        )


def least_needs(job: ElasticJob) -> dict[str, Resources] | None:
    """Return the resources of each role at its minimum size; None if a quantity is malformed."""
    try:
        return {
            role: pod_requests(spec.pod) * job.spec.range_of(role).lowest
            for role, spec in job.spec.roles.items()
        }
    except MalformedQuantity:
        return None


def the_brain_has_an_address(job: ElasticJob) -> Iterator[Problem]:
    """brainService is host:port."""
    address = job.spec.brain_service
    if address and re.fullmatch(r"(https?://)?[^\s/:]+(:\d{1,5})?/?", address) is None:
        yield Problem(
            "spec.brainService", f"{address!r} is no address: write host:port, such as brain.dlrover:50001"
        )


def gangs_fit_the_sizes(job: ElasticJob) -> Iterator[Problem]:
    """A gang of more pods than the job ever has would wait forever."""
    asked = job.spec.run_policy.scheduling.min_available
    most = [spec.bounds.most for spec in job.spec.roles.values()]
    if asked is None or None in most:
        return
    if asked > (all_pods := sum(size for size in most if size is not None)):
        yield Problem(
            "spec.runPolicy.scheduling.minAvailable", f"{asked} is more than all {all_pods} pods: write less"
        )


def the_gang_has_what_is_asked(job: ElasticJob) -> Iterator[Problem]:
    """An API that has no queues, time limits or different priorities is not asked for them."""
    scheduling = job.spec.run_policy.scheduling
    if scheduling.gang is Gang.NONE:
        return
    able = [gang for gang, offers in OFFERS.items() if needs(job) <= offers]
    if scheduling.gang in ANY and not able:
        fields = " and ".join(sorted(needs(job)))
        yield Problem(
            "spec.runPolicy.scheduling.gang", f"there is no API that has {fields} together: leave one out"
        )
    if scheduling.gang in ANY:
        return
    for field in sorted(needs(job) - OFFERS[scheduling.gang]):
        others = " or ".join(gang for gang, offers in OFFERS.items() if field in offers)
        what = "nodes of different PriorityClasses" if field == PRIORITIES else field
        yield Problem(
            f"spec.runPolicy.scheduling.{field}",
            f"gang {scheduling.gang} has no {what}: leave it out, or write gang: {others}",
        )


CHECKS: Final[tuple[Check, ...]] = (
    the_name_leaves_room,
    there_is_a_role,
    role_names_are_labels,
    the_strategy_has_its_roles,
    sizes_are_in_order,
    single_roles_are_single,
    somebody_can_train,
    the_run_policy_names_roles,
    a_world_fits_the_unit,
    templates_can_run,
    envs_are_variables,
    priorities_are_shares,
    the_least_fits_the_limits,
    the_brain_has_an_address,
    gangs_fit_the_sizes,
    the_gang_has_what_is_asked,
)


def _between(least: int | None, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return f"{least} to {most}" if least is not None else f"at most {most}"

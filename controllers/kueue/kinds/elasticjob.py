"""ElasticJobs in a queue: the base is the master and each role at its minimum, what is beyond are slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any, Final

from elasticjob.api.readings import counts, indexes
from elasticjob.api.resources import NOTHING, Resources, container_requests
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.checks.common import node as place_of
from elasticjob.api.v1alpha1.common import LABEL_JOB, MOST_NODES
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob, RestartPolicy
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.kueue import ANY, FLAVORS, PRIORITY_CLASS, longest_run, queue_of
from elasticjob.api.v1alpha1.placing import with_resource
from elasticjob.controllers.kueue.demand import PodSetRequest, QueueRequest, for_kueue, quota_part
from elasticjob.controllers.kueue.workload import MULTIKUEUE, PREBUILT
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import controlled_by, controller_uid
from elasticjob.controllers.passes.conclusions import COMPLETE, FAILED, is_ours, is_over
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.rules import policy
from elasticjob.controllers.passes.triggers import job_of, life_changed
from elasticjob.kube.controller.predicates import Predicate
from elasticjob.kube.objects.conditions import find, is_true
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import Pod

RUNNING: Final = "Running"
Template = Callable[[ElasticJob], Manifest]


@dataclass(frozen=True)
class ElasticJobs:
    """ElasticJobs; a TrainingJob is one as well."""

    caches: Caches
    master: Template
    """The spec of the pod of a job's master."""
    kind: Kind[Any] = ELASTICJOB
    sizes: tuple[Kind[Any], ...] = (JOBRESOURCE,)

    def find(self, key: Key) -> ElasticJob | None:
        """Return a job from memory."""
        return self.caches.jobs.get(key)

    def queue(self, job: ElasticJob) -> str:
        """Return the LocalQueue that a job names, here or in the manager cluster of MultiKueue."""
        return queue_of(job) if is_ours(job) or job.spec.managed_by == MULTIKUEUE else ""

    def is_suspended(self, job: ElasticJob) -> bool:
        """Whether the user has suspended a job."""
        return job.spec.suspend

    def demand(self, job: ElasticJob, planned: JobResource | None = None) -> QueueRequest:
        """Return what a job asks of its queue, or would with another JobResource."""
        resource = planned or self.caches.resources.get(job.key)
        if resource is not None and controller_uid(resource.metadata) != job.metadata.uid:
            resource = None
        return demand_of(job, resource, self.master)

    def selector(self, key: Key) -> str:
        """Return the label selector of a job's pods."""
        return f"{LABEL_JOB}={key.name}"

    def lives(self, key: Key, pods: list[Pod] | None, now: datetime) -> tuple[Life, ...]:
        """Return all pods of a job, whichever uid its objects have."""
        if pods is None:
            return self.caches.by_labels(key, now)
        lives = map(self.caches.life, pods)
        return tuple(life.as_of(now) for life in lives if life is not None)

    def job_of(self, pod: Pod) -> Iterable[Key]:
        """Return the job of a pod, as a key."""
        return job_of(pod)

    def matters(self) -> Predicate:
        """Return the predicate: a pod changed in a way that decisions rest on."""
        return life_changed(self.caches)

    def labels(self, machine: str) -> Mapping[str, str]:
        """Return the labels of a machine, as far as it is known."""
        meta = self.caches.machines.meta(Key("", machine))
        return (meta.labels or {}) if meta else {}


def demand_of(job: ElasticJob, resource: JobResource | None, master: Template) -> QueueRequest:
    """Return what an ElasticJob asks of its queue, with the resources that plans gave its roles."""
    about = job.metadata
    ended = is_over(job)
    condition = find(job.status.conditions, COMPLETE if is_true(job.status.conditions, COMPLETE) else FAILED)
    return QueueRequest(
        kind=ELASTICJOB,
        key=job.key,
        uid=job.metadata.uid,
        owner=controlled_by(job),
        queue=queue_of(job),
        roles=_with_one(job, tuple(_roles(job, resource, master))),
        priority_class=_class_of(job),
        longest=longest_run(about.labels),
        prebuilt=about.annotations.get(PREBUILT, "") or about.labels.get(PREBUILT, ""),
        elsewhere=not is_ours(job),
        mixed=about.annotations.get(FLAVORS) == ANY,
        ready=is_true(job.status.conditions, RUNNING),
        suspended=job.spec.suspend,
        ended=is_true(job.status.conditions, COMPLETE) if ended else None,
        words=condition.message if condition and ended else "",
        notes=for_kueue(job.metadata.annotations),
    )


def target(job: ElasticJob, resource: JobResource | None) -> Mapping[str, int]:
    """Return how many nodes each role should have: as asked last, by an autoscaler, by plans or by the user.

    An autoscaler writes `spec.replicas` of the JobResource; what is among its sizes and was not written by us
    is asked for, too.
    """
    asked = {role: spec.replicas for role, spec in job.spec.roles.items() if spec.replicas is not None}
    if resource is None:
        return asked
    about = resource.metadata.annotations
    written, kept = counts(about.get(names.SIZES)), counts(about.get(names.WANTED))
    now = {role: spec.replicas for role, spec in resource.spec.replica_resource_specs.items()}
    scaled = {
        role: job.spec.range_of(role).clamp(count)
        for role, count in now.items()
        if role in job.spec.roles and count is not None and count != written.get(role, count)
    }
    asked |= {role: count for role, count in kept.items() if role in job.spec.roles}
    if resource.spec.replicas is not None and WORKER in job.spec.roles:
        asked[WORKER] = job.spec.range_of(WORKER).clamp(resource.spec.replicas)
    return asked | scaled


def _roles(job: ElasticJob, resource: JobResource | None, master: Template) -> Iterator[PodSetRequest]:
    if job.spec.needs_master:
        given = quota_part({}, job.spec.master.pod) if job.spec.master else {}
        yield PodSetRequest(names.MASTER, quota_part({}, master(job)), 1, 1, asked=given, repeats=True)
    asked = target(job, resource)
    for role, spec in job.spec.roles.items():
        range_, spares = job.spec.range_of(role), job.spec.spares_of(role)
        amounts = largest(job, role, resource)
        template = quota_part(spec.template.get("metadata") or {}, with_resource(spec, amounts))
        least = range_.lowest + spares
        most = range_.clamp(asked.get(role, range_.lowest)) + spares if is_ours(job) else least
        limit = (range_.largest if range_.largest is not None else most) + spares
        repeats = policy(job, role).restart is RestartPolicy.ALWAYS
        most = max(least, most)
        completed = resource.status.completed_indexes.get(role, "") if resource else ""
        yield PodSetRequest(
            role,
            template,
            least,
            most,
            unit=range_.unit,
            most=max(limit, most),
            repeats=repeats,
            completed=indexes(completed, MOST_NODES),
        )


def _with_one(job: ElasticJob, roles: tuple[PodSetRequest, ...]) -> tuple[PodSetRequest, ...]:
    """Return the roles, of which one has a node at least: nothing can be asked for no pod."""
    if not roles or any(each.least for each in roles):
        return roles
    first = roles[0]
    least = job.spec.range_of(first.name).smallest
    return (replace(first, least=least, wanted=max(least, first.wanted)), *roles[1:])


def largest(job: ElasticJob, role: str, resource: JobResource | None) -> dict[str, str]:
    """Return what plans gave to the nodes of a role: of single nodes that have more, the most of each."""
    specs = resource.spec.replica_resource_specs if resource else {}
    common = {n: str(a) for n, a in specs[role].resource.items()} if role in specs else {}
    single = (
        Resources.parse({n: str(a) for n, a in node.resource.items()})
        for node in (resource.spec.nodes if resource else ())
        if place_of(job.metadata.name, (role,), node.name)
    )
    most = reduce(Resources.most, single, NOTHING)
    given = container_requests(job.spec.roles[role].main_container or {}) | Resources.parse(common)
    larger = {n: str(a) for n, a in most.items() if n not in given or a.value > given[n].value}
    return common | larger


def _class_of(job: ElasticJob) -> tuple[str, str]:
    if named := job.metadata.labels.get(PRIORITY_CLASS):
        return "WorkloadPriorityClass", named
    own = (str(spec.pod.get("priorityClassName") or "") for spec in job.spec.roles.values())
    found = next(filter(None, own), "") or job.spec.run_policy.scheduling.priority_class_name
    return ("PriorityClass", found) if found else ("", "")

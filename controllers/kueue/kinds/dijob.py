"""DIJobs in a queue: the base is the coordinator; pods of di-server wait, gated, for a place in a slice.

What di-server makes of one role may differ in size: pods that ask for the same are a role here.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from elasticjob.api.diengine import names as di
from elasticjob.api.diengine import pods
from elasticjob.api.diengine.checks import problems
from elasticjob.api.diengine.dijob import DIJOB, DIJob, DIJobPhase
from elasticjob.api.v1alpha1.kueue import (
    POD_SET,
    PRIORITY_CLASS,
    QUOTA_GATE,
    TOPOLOGY_GATE,
    WORKLOAD_OF,
    longest_run,
    queue_of,
)
from elasticjob.controllers.kueue.demand import PodSetRequest, QueueRequest, for_kueue, quota_part
from elasticjob.controllers.kueue.grant import Place
from elasticjob.controllers.kueue.workload import TOPOLOGY, UNCONSTRAINED
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts.owners import controlled_by, is_part
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.controller.predicates import Predicate, any_change
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import Container, Pod
from elasticjob.sizing.exits import ExitReason

ENDS: Final = {"Succeeded": ExitReason.SUCCEEDED, "Failed": ExitReason.FATAL_ERROR}


@dataclass(frozen=True)
class DIJobs:
    """DIJobs of DI-engine."""

    jobs: Cache[DIJob]
    pods: Cache[Pod]
    kind: Kind[Any] = DIJOB
    sizes: tuple[Kind[Any], ...] = ()

    def find(self, key: Key) -> DIJob | None:
        """Return a job from memory."""
        return self.jobs.get(key)

    def queue(self, job: DIJob) -> str:
        """Return the LocalQueue that a job names, "" for none."""
        return queue_of(job)

    def is_suspended(self, job: DIJob) -> bool:
        """Whether a job never runs, in a cluster without the webhook."""
        return bool(problems(job))

    def demand(self, job: DIJob, planned: object = None) -> QueueRequest:
        """Return what a job asks of its queue."""
        return demand_of(job, [p for p in self.pods.owned_by(job.metadata.uid) if is_part(p.metadata, job)])

    def selector(self, key: Key) -> str:
        """Return the label selector of a job's pods."""
        return f"{di.OURS},{di.LABEL_JOB}={key.name}"

    def lives(self, key: Key, pods: list[Pod] | None, now: datetime) -> tuple[Life, ...]:
        """Return all pods of a job, whichever uid it has."""
        found = self.pods.list(key.namespace, {di.LABEL_JOB: key.name}) if pods is None else pods
        return tuple(map(life_of, found))

    def job_of(self, pod: Pod) -> Iterable[Key]:
        """Return the job that a pod's label names."""
        job = pod.metadata.labels.get(di.LABEL_JOB, "")
        return [Key(pod.metadata.namespace, job)] if job else []

    def matters(self) -> Predicate:
        """Return the predicate: a pod changed. What it asks for is read from all of its spec."""
        return any_change

    def labels(self, machine: str) -> Mapping[str, str]:
        """Return nothing: each pod of di-server is placed by itself."""
        return {}


def demand_of(job: DIJob, found: Iterable[Pod]) -> QueueRequest:
    """Return what a DIJob asks of its queue: its coordinator, and the pods that there are beside it."""
    phase, labels = job.status.phase, job.metadata.labels
    template, class_ = job.spec.coordinator.template, job.spec.priority_class_name
    spec = {**(template.get("spec") or {}), **({"priorityClassName": class_} if class_ else {})}
    roles = [PodSetRequest(di.Role.COORDINATOR, quota_part(template.get("metadata") or {}, spec), 1, 1)]
    counts, templates = Counter[str](), dict[str, Manifest]()
    for pod in sorted(found, key=is_gated):  # what those that wait ask for is asked of the queue
        if pods.role_of(pod) in (None, di.Role.COORDINATOR) or is_leaving(pod):
            continue
        templates[role_of(pod)] = asked_by(pod)
        counts[role_of(pod)] += 1
    roles += [
        PodSetRequest(name, templates[name], 0, count, most=count) for name, count in sorted(counts.items())
    ]
    ended = phase is DIJobPhase.SUCCEEDED if phase is not None and phase.is_terminal else None
    told = job.status.condition(phase.value) if phase is not None and phase.is_terminal else None
    classes = ("WorkloadPriorityClass", labels.get(PRIORITY_CLASS, "")), ("PriorityClass", class_)
    return QueueRequest(
        kind=DIJOB,
        key=job.key,
        uid=job.metadata.uid,
        owner=controlled_by(job),
        queue=queue_of(job),
        roles=tuple(roles),
        priority_class=next((each for each in classes if each[1]), ("", "")),
        longest=longest_run(labels),
        mixed=True,  # they are placed one by one
        suspended=bool(problems(job)),  # of a cluster without the webhook: it never runs
        ended=ended,
        words=told.message if told else "",
        notes=for_kueue(job.metadata.annotations),
    )


def life_of(pod: Pod) -> Life:
    """Return a pod of a DIJob as a life, as far as its quota needs it."""
    about, end = pod.metadata, ENDS.get(pod.status.phase)
    return Life(
        name=about.name,
        uid=about.uid,
        role=role_of(pod),
        index=0,
        created=about.creation_timestamp,
        ended=Exit(end) if end else None,
        running=pod.status.phase == "Running",
        ready=any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions),
        terminating=about.deletion_timestamp is not None,
        machine=pod.spec.node_name,
        version=about.resource_version,
        workload=about.annotations.get(WORKLOAD_OF, ""),
    )


def role_of(pod: Pod) -> str:
    """Return the role of a pod in Workloads: the coordinator, or all pods that ask for the same.

    One that has a place keeps the role of that place, whatever is added to its spec there.
    """
    about, role = pod.metadata, pods.role_of(pod)
    if WORKLOAD_OF in about.annotations and (named := about.labels.get(POD_SET)):
        return named
    if role is None or role is di.Role.COORDINATOR:
        return role or ""
    text = json.dumps(asked_by(pod), sort_keys=True)
    return f"{role}-{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:5]}"


def asked_by(pod: Pod) -> Manifest:
    """Return what a pod asks for, as it was before it had a place."""
    spec, before = pod.spec, pods.before(pod)
    written: Manifest = {
        "affinity": spec.affinity,
        "nodeSelector": before.node_selector,
        "priorityClassName": spec.priority_class_name,
        "tolerations": before.tolerations,
        "containers": [_container(each) for each in spec.containers],
        "initContainers": [_container(each) for each in spec.init_containers],
    }
    chosen = {n: v for n, v in pod.metadata.annotations.items() if n in TOPOLOGY or n == UNCONSTRAINED}
    return quota_part({"annotations": chosen}, written)


def is_leaving(pod: Pod) -> bool:
    """Whether a pod has ended or is being deleted: no quota is asked for it."""
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDS


def is_gated(pod: Pod) -> bool:
    """Whether a pod waits for quota."""
    return any(gate.get("name") == QUOTA_GATE for gate in pod.spec.scheduling_gates)


def open_gate(pod: Pod, place: Place | None) -> Manifest:
    """Return the patch with which a gated pod goes to its place; without one it is in no queue."""
    kept = {TOPOLOGY_GATE} if place and TOPOLOGY_GATE in place.gates else set()
    ours = {QUOTA_GATE, TOPOLOGY_GATE} - kept
    gates = [gate for gate in pod.spec.scheduling_gates if gate.get("name") not in ours]
    spec: Manifest = {"schedulingGates": gates or None}
    if place is None:
        return {"spec": spec}
    if place.node_selector:
        spec["nodeSelector"] = dict(place.node_selector)
    if place.tolerations:
        spec["tolerations"] = [*pod.spec.tolerations, *place.tolerations]
    annotations = {**place.annotations, **pods.scheduling_annotation(pod)}
    return {"metadata": {"labels": dict(place.labels), "annotations": annotations}, "spec": spec}


def _container(each: Container) -> Manifest:
    requests = {name: str(amount) for name, amount in each.resources.requests.items()}
    restarts = {"restartPolicy": each.restart_policy} if each.restart_policy else {}
    return {"name": each.name, "image": each.image, "resources": {"requests": requests}, **restarts}

"""What a job asks of its queue: the pods of each role, at least and in all. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from elasticjob.api.readings import number
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB
from elasticjob.controllers.kueue.workload import (
    GATED_BY,
    IN_USE,
    JOB_UID,
    PROVISIONING,
    SLICE_SIZE,
    SLICE_TOPOLOGY,
    TOPOLOGY,
    UNCONSTRAINED,
    WORKLOAD,
    PodSet,
    Workload,
)
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Key, Kind, Manifest

FORM: Final = "elasticjob.dlrover/form"
"""On the base: a hash of all that it is for, but for counts and amounts."""
SLICE: Final = "elasticjob.dlrover/slice"
"""On Workloads: the role of which it holds nodes beyond the minimum."""
CLASS: Final = "WorkloadPriorityClass"
"""The kind of classes that may change while a Workload holds quota; a PriorityClass is its pods'."""
LOWEST: Final = -(2**31)
"""The lowest priority that there is."""
MOST_SLICES: Final = 32
"""Of a role, where each of them has one nodeUnit; a larger role has larger ones."""
_PLACED: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "tolerations",
)
"""What decides about quota and flavours in a pod spec; environments and volumes are left out."""
_CONTAINER: Final = ("name", "resources", "restartPolicy")


@dataclass(frozen=True)
class PodSetRequest:
    """The pods of a role: at least so many, `wanted` in all. Those beyond are asked for by `unit`."""

    name: str
    template: Manifest
    least: int
    wanted: int
    unit: int = 1
    most: int = 0
    asked: Manifest | None = None
    """What of the template the user has asked for; None: all of it."""
    repeats: bool = False
    """Whether pods that have succeeded are made again."""
    completed: frozenset[int] = frozenset()
    """The indexes of nodes that have succeeded, of which the pods may be gone."""

    @property
    def step(self) -> int:
        """The nodes of a slice."""
        extra = max(0, self.most - self.least)
        return self.unit * max(1, -(-extra // (self.unit * MOST_SLICES)))

    def pods(self, count: int, where: Mapping[str, str] | None = None) -> PodSet:
        """Return so many pods of this role, on machines with these labels, as Kueue sees them."""
        return PodSet(self.name, count, self._on(where), _topology(self.template))

    @property
    def required_topology(self) -> str:
        """The label of machines of which the role's pods must all have the same value, "" for none."""
        return str(_topology(self.template).get("required", ""))

    def pod_set(self, count: int, where: Mapping[str, str] | None = None) -> Manifest:
        """Return pods of this role as they stand in a Workload, on machines with these labels."""
        asked = {"topologyRequest": found} if (found := _topology(self.template, count)) else {}
        return {"name": self.name, "count": count, "template": self._on(where), **asked}

    def _on(self, where: Mapping[str, str] | None) -> Manifest:
        if not where:
            return self.template
        spec: Manifest = self.template["spec"]
        selector = {**(spec.get("nodeSelector") or {}), **where}
        return {**self.template, "spec": {**spec, "nodeSelector": selector}}


@dataclass(frozen=True)
class QueueRequest:
    """A job that a queue admits."""

    kind: Kind[Any]
    key: Key
    uid: str
    owner: Manifest
    queue: str
    roles: tuple[PodSetRequest, ...]
    priority_class: tuple[str, str] = ("", "")
    """Kind and name of the class: WorkloadPriorityClass or PriorityClass."""
    longest: int | None = None
    """How many seconds it may run in all."""
    prebuilt: str = ""
    """The Workload that was made for it beforehand: in a worker cluster of MultiKueue, by the manager's."""
    elsewhere: bool = False
    """Whether its pods run in a worker cluster of MultiKueue, and its status comes from there."""
    ready: bool = False
    """Of such a job: whether it runs."""
    mixed: bool = False
    """Whether nodes of a role may have different flavours."""
    suspended: bool = False
    ended: bool | None = None
    """Whether it has ended, and with success; None while it has not."""
    words: str = ""
    """How it ended."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job for Kueue."""

    @cached_property
    def base(self) -> str:
        """The name of the Workload of what runs at least; another one for another need."""
        if self.prebuilt:
            return self.prebuilt
        shape = json.dumps([self.queue, list(self.priority_class), [*self._shapes]], sort_keys=True)
        return f"{self.kind.name.lower()}-{self.key.name}-{self._hash(shape)}"

    @cached_property
    def form(self) -> str:
        """A hash of what the base is for: jobs of another form do not run in it, whatever it has room for."""
        sets = [[name, _without_amounts(asked)] for name, _, asked in self._shapes]
        kind = self.priority_class[0]
        class_ = [] if kind in ("", CLASS) else list(self.priority_class)
        return self._hash(json.dumps([self.queue, class_, sets], sort_keys=True))

    def _hash(self, shape: str) -> str:
        identity = "\n".join((self.kind.name, self.kind.group, self.key.name, self.uid, shape))
        return hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:5]

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its Workloads."""
        return {**names.job_labels(self.key.name, "queue"), JOB_UID: self.uid}

    def slice(self, role: str, number: int) -> str:
        """Return the name of a slice."""
        return f"{self.base}-{role}-{number}"

    @property
    def _shapes(self) -> Iterator[list[Any]]:
        """What another base is needed for: nothing that a new release of the operator changes by itself."""
        roles = ((each, each.template if each.asked is None else each.asked) for each in self.roles)
        yield from ([role.name, role.least, asked] for role, asked in roles if role.least)

    @property
    def least(self) -> tuple[PodSet, ...]:
        """The pods of what runs at least."""
        return tuple(each.pods(each.least) for each in self.roles if each.least)

    def base_workload(self, priority: int | None, counts: Mapping[str, int] | None = None) -> Manifest:
        """Return the Workload of what runs at least, or of so many of each role, with its priority."""
        found = [(role, role.least if counts is None else counts[role.name]) for role in self.roles]
        sets = [role.pod_set(count) for role, count in found if count]
        made = self._workload(self.base, sets, priority, with_class=True)
        made["metadata"]["annotations"] |= {FORM: self.form}
        made["spec"] |= {} if self.longest is None else {"maximumExecutionTimeSeconds": self.longest}
        return made

    def slice_workload(
        self,
        role: PodSetRequest,
        number: int,
        count: int,
        priority: int | None,
        where: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Return a Workload of nodes beyond the minimum, which is less important than any minimum.

        `where`: the labels of the machines among which they must be, since others of the role are.
        """
        sets = [role.pod_set(count, where)]
        made = self._workload(self.slice(role.name, number), sets, lower(priority), with_class=False)
        made["metadata"]["labels"][SLICE] = role.name
        return made

    def _workload(
        self, name: str, sets: list[Manifest], priority: int | None, *, with_class: bool
    ) -> Manifest:
        kind, class_ = self.priority_class
        group = "kueue.x-k8s.io" if kind == CLASS else "scheduling.k8s.io"
        notes = {key: note for key, note in self.notes.items() if with_class or key != GATED_BY}
        named = (
            {"priorityClassRef": {"group": group, "kind": kind, "name": class_}}
            if class_ and with_class and priority is not None
            else {}
        )
        value = {} if priority is None else {"priority": priority}
        return {
            "apiVersion": WORKLOAD.api_version,
            "kind": WORKLOAD.name,
            "metadata": {
                "name": name,
                "namespace": self.key.namespace,
                "labels": self.labels,
                "finalizers": [IN_USE],
                "ownerReferences": [self.owner],
                "annotations": notes,
            },
            "spec": {"queueName": self.queue, "podSets": sets, **named, **value},
        }


def domains(
    demand: QueueRequest, lives: Iterable[Life], labels: Callable[[str], Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the machines among which a role must stay by its topology: the label of one on which it is.

    `labels` returns those of a machine. Roles without such a topology, or without a pod yet, are left out.
    """
    found = dict[str, dict[str, str]]()
    placed = {life.role: life.machine for life in lives if life.machine and not life.over}
    for role in demand.roles:
        if role.required_topology and (
            value := labels(placed.get(role.name, "")).get(role.required_topology)
        ):
            found[role.name] = {role.required_topology: value}
    return found


def for_kueue(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a job that its Workloads have as well."""
    return {k: v for k, v in annotations.items() if k == GATED_BY or k.startswith(PROVISIONING)}


def lower(priority: int | None) -> int:
    """Return the priority of slices beside a base with this one: one lower, where there is a lower one."""
    return max((priority or 0) - 1, LOWEST)


def is_slice(workload: Workload) -> bool:
    """Whether a Workload is for nodes beyond the minimum."""
    return SLICE in workload.metadata.labels


def number_of(workload: Workload) -> int:
    """Return the number in the name of a slice."""
    return number(workload.metadata.name.rpartition("-")[2])


def owner_job(workload: Workload) -> str:
    """Return the job that a Workload of ours is for, "" for those of others."""
    return workload.metadata.labels.get(LABEL_JOB, "")


def quota_part(metadata: Manifest, pod: Manifest) -> Manifest:
    """Return the part of a pod template that decides about quota."""

    def container(each: Manifest) -> Manifest:
        return {name: each[name] for name in _CONTAINER if name in each}

    spec = {name: pod[name] for name in _PLACED if pod.get(name)}
    spec["containers"] = [container(each) for each in pod.get("containers") or [{"name": "main"}]]
    if pod.get("initContainers"):
        spec["initContainers"] = [container(each) for each in pod["initContainers"]]
    kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {"metadata": kept, "spec": spec} if kept else {"spec": spec}


def _without_amounts(template: Manifest) -> Manifest:
    """Return a pod template without what its containers ask for."""
    spec = dict(template.get("spec") or {})
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [{k: v for k, v in each.items() if k != "resources"} for each in spec[name]]
    return {**template, "spec": spec}


def _topology(template: Manifest, count: int = 0) -> Manifest:
    annotations: Manifest = (template.get("metadata") or {}).get("annotations") or {}
    found: Manifest = {word: annotations[name] for name, word in TOPOLOGY.items() if name in annotations}
    if annotations.get(UNCONSTRAINED) == "true":
        found["unconstrained"] = True
    level, size = annotations.get(SLICE_TOPOLOGY), number(annotations.get(SLICE_SIZE))
    if level and size > 0 and count and count % size == 0:  # Kueue refuses any other
        found |= {"podSetSliceRequiredTopology": level, "podSetSliceSize": size}
    return {**found, "podIndexLabel": LABEL_INDEX} if found else {}

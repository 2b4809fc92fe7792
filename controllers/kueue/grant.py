"""What a job has of its queue: the Workloads that are admitted, and the places in them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Final

from elasticjob.api.resources import NOTHING, Resources, container_requests
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.kueue import POD_SET, TOPOLOGY_GATE, WORKLOAD_OF
from elasticjob.controllers.kueue.demand import is_slice, number_of
from elasticjob.controllers.kueue.workload import (
    TOPOLOGY,
    UNCONSTRAINED,
    Assignment,
    ResourceFlavor,
    Workload,
)
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.kube.objects.kinds import Manifest

EMPTY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Place:
    """Where pods of a role may be made: in this Workload, so many, with this in their spec."""

    workload: str
    role: str
    count: int
    known: bool = True  # whether its flavours are there: else no pod is made in it, and those that run stay
    done: int = 0  # of `count`: they will not run again, and their quota is returned
    amounts: Mapping[str, Resources] = field(default_factory=dict)  # for each pod, by container
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()
    gates: tuple[str, ...] = ()

    def within(
        self, container: str, asked: Mapping[str, str], has: Mapping[str, str] = EMPTY
    ) -> dict[str, str]:
        """Return what a container that asks for so much gets here; what there is no quota for is left out.

        One that runs keeps what it `has` of a resource until there is quota for all that is asked of it.
        """
        most, found = self.amounts.get(container, NOTHING), dict[str, str]()
        now, then = Resources.parse(has), Resources.parse(asked)
        for name in asked.keys() & most.keys():
            short = then[name].value > most[name].value
            kept = short and name in now and now[name].value <= most[name].value
            found[name] = has[name] if kept else str(most[name]) if short else asked[name]
        return found

    def fit(self, pod: Manifest) -> Manifest:
        """Return the manifest of a pod as it is made in this place."""
        about, spec = pod["metadata"], dict(pod["spec"])
        if self.node_selector:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.node_selector}
        if self.tolerations:
            spec["tolerations"] = [*(spec.get("tolerations") or []), *self.tolerations]
        if self.gates:
            gates = [{"name": gate} for gate in self.gates]
            spec["schedulingGates"] = [*(spec.get("schedulingGates") or []), *gates]
        metadata = {
            **about,
            "labels": {**about.get("labels", {}), **self.labels},
            "annotations": {**about.get("annotations", {}), **self.annotations},
        }
        return {**pod, "metadata": metadata, "spec": spec}


@dataclass(frozen=True)
class Grant:
    """What the queue gives to a job: `reason` and `sentence` say why it is no more.

    Without `admitted` nothing of the job may run. The base comes first among `places`.
    """

    queue: str
    admitted: bool = False
    reason: str = ""
    sentence: str = ""
    least: Mapping[str, int] = field(default_factory=dict)
    places: tuple[Place, ...] = ()

    def best(self, role: str, container: str, asked: Mapping[str, str]) -> dict[str, str]:
        """Return the most that any place of a role has of what a container asks for."""
        found = [place.within(container, asked) for place in self.places if place.role == role]
        whole = [each for each in found if each == asked]
        most = reduce(Resources.most, map(Resources.parse, found), NOTHING)
        return whole[0] if whole else most.manifest()

    def lacking(self, role: str, container: str, asked: Mapping[str, str]) -> str:
        """Return what a place of a role has less of than a container is to get, in words; "" for none."""
        for place in self.places if self.admitted else ():
            given = place.within(container, asked)
            short = sorted(name for name, amount in asked.items() if given.get(name) != amount)
            if place.role == role and short:
                return ", ".join(f"{role} has {given.get(n, 'no')} of {asked[n]} {n}" for n in short)
        return ""

    def capacity(self, role: str) -> int:
        """Return how many nodes of a role the job may have, once its base is admitted."""
        if not self.admitted:
            return self.least.get(role, 0)
        return sum(place.count for place in self.places if place.role == role)

    def most(self, job: ElasticJob, role: str) -> int:
        """Return how many replicas a role may have: spares are beside them, where there is room for both."""
        range_, capacity = job.spec.range_of(role), self.capacity(role)
        return range_.down(max(capacity - job.spec.spares_of(role), min(capacity, range_.lowest)))

    def free(self, lives: Iterable[Life]) -> Free:
        """Return the places without those that pods have."""
        taken = Counter((life.workload, life.role) for life in lives if not life.over)
        return Free(self, dict(taken))

    @cached_property
    def workloads(self) -> frozenset[str]:
        """The names of the Workloads in which pods may be."""
        return frozenset(place.workload for place in self.places)


@dataclass
class Free:
    """The places that are left while a pass makes pods."""

    grant: Grant
    taken: dict[tuple[str, str], int]

    def take(self, role: str) -> Place | None:
        """Return a place for one more pod of a role; None where none is left."""
        for place in self.grant.places if self.grant.admitted else ():
            key = (place.workload, role)
            if place.role == role and place.known and self.taken.get(key, 0) < place.count - place.done:
                self.taken[key] = self.taken.get(key, 0) + 1
                return place
        return None


def places_of(workload: Workload, flavors: Mapping[str, ResourceFlavor]) -> tuple[Place, ...]:
    """Return the places of an admitted Workload, by its flavours and admission checks."""
    admission = workload.status.admission
    if not workload.is_admitted or admission is None:
        return ()
    return tuple(_place(workload, each, flavors) for each in admission.pod_set_assignments)


def flavors_of(role: str, workloads: Iterable[Workload]) -> Mapping[str, str]:
    """Return the flavour of each resource that the first admitted pods of a role have."""
    for each in sorted(workloads, key=lambda w: (is_slice(w), number_of(w))):
        assigned = (
            each.status.admission.pod_set_assignments if each.is_admitted and each.status.admission else ()
        )
        if found := next((a.flavors for a in assigned if a.name == role), None):
            return found
    return {}


def _place(workload: Workload, given: Assignment, flavors: Mapping[str, ResourceFlavor]) -> Place:
    templates = (each.template for each in workload.spec.pod_sets if each.name == given.name)
    containers = [each for one in templates for each in (one.get("spec") or {}).get("containers") or ()]
    chosen = [flavors[name].spec for name in dict.fromkeys(given.flavors.values()) if name in flavors]
    updates = [
        update
        for check in workload.status.admission_checks
        for update in check.pod_set_updates
        if update.name == given.name
    ]
    count = workload.count(given.name)
    selector: dict[str, str] = {}
    tolerations: list[Any] = []
    for each in chosen:
        selector |= each.node_labels
        tolerations += each.tolerations
    for update in updates:
        selector |= update.node_selector
        tolerations += update.tolerations
    return Place(
        workload=workload.chain,
        role=given.name,
        count=count if given.count is None else min(count, given.count),  # lowered since, or partly admitted
        known=flavors.keys() >= {*given.flavors.values()},
        done=sum(each.count for each in workload.status.reclaimable_pods if each.name == given.name),
        amounts={str(each.get("name", "")): container_requests(each) for each in containers},
        labels={POD_SET: given.name, **{k: v for update in updates for k, v in update.labels.items()}},
        annotations={
            WORKLOAD_OF: workload.chain,
            **_topology(workload, given),
            **{k: v for u in updates for k, v in u.annotations.items()},
        },
        node_selector=selector,
        tolerations=tuple(tolerations),
        gates=(TOPOLOGY_GATE,) if given.topology_assignment is not None else (),
    )


def _topology(workload: Workload, given: Assignment) -> dict[str, str]:
    """The annotation of pods whose machine Kueue chooses unasked: it overlooks those that have none."""
    if given.topology_assignment is None:
        return {}
    templates = (each.template for each in workload.spec.pod_sets if each.name == given.name)
    asked = {name for each in templates for name in (each.get("metadata") or {}).get("annotations") or {}}
    return {} if asked & {*TOPOLOGY, UNCONSTRAINED} else {UNCONSTRAINED: "true"}

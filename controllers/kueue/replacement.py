"""Which Workload a job runs in, and the larger one that waits to take its place. Pure.

A job stays in the base that holds quota while its queue and the form of its pods stay; less may be asked for
than that holds. Where more is, a Workload of all of it waits beside (Kueue's workload-slice-replacement-for):
it needs quota for the difference alone, in the same flavours, and the pods stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from elasticjob.api.resources import pod_requests
from elasticjob.controllers.kueue.demand import CLASS, FORM, QueueRequest, is_slice
from elasticjob.controllers.kueue.quota import Market, needs
from elasticjob.controllers.kueue.workload import JOB_UID, PodSet, Workload


@dataclass(frozen=True)
class Holdings:
    """The Workloads of a job, each in its part."""

    demand: QueueRequest
    every: tuple[Workload, ...]

    @cached_property
    def predecessors(self) -> frozenset[str]:
        """The names of those whose place another one has taken."""
        return frozenset(each.replaces for each in self.every if each.has_quota and each.replaces)

    @cached_property
    def beside(self) -> tuple[Workload, ...]:
        """The Workloads that wait to replace another one."""
        held = {each.metadata.name for each in self.every if each.has_quota}
        return tuple(each for each in self.every if not each.has_quota and each.replaces in held)

    @cached_property
    def _mine(self) -> tuple[Workload, ...]:
        """The Workloads that may have pods of the job, in the queue that it names."""
        out = self.predecessors | {each.metadata.name for each in self.beside}
        asked = (each for each in self.every if each.spec.queue_name == self.demand.queue)
        return tuple(each for each in asked if each.metadata.name not in out)

    @cached_property
    def base(self) -> Workload | None:
        """The Workload of what runs at least: the one that holds quota, else one of what is asked for now."""
        exact = next((each for each in self.every if each.metadata.name == self.demand.base), None)
        if self.demand.prebuilt or (exact is not None and exact.has_quota and exact in self._mine):
            return exact
        mine = [each for each in self._mine if not is_slice(each) and self._has_the_form(each)]
        held = next((each for each in mine if each.has_quota), None if exact in self.beside else exact)
        return held or next((each for each in mine if self._is_of_another_class(each)), None)

    @cached_property
    def slices(self) -> tuple[Workload, ...]:
        """The Workloads of nodes beyond the minimum."""
        uid = self.demand.uid
        return tuple(e for e in self._mine if is_slice(e) and e.metadata.labels.get(JOB_UID) == uid)

    def _is_of_another_class(self, workload: Workload) -> bool:
        """Whether a Workload is for what is asked for, but for its class: it keeps its place in the queue."""
        (kind, _), ref = self.demand.priority_class, workload.spec.priority_class_ref
        held, asked = workload.spec.pod_sets, self.demand.least
        return (
            ref is not None
            and kind == ref.kind == CLASS
            and FORM in workload.metadata.annotations
            and [(each.name, each.count) for each in held] == [(each.name, each.count) for each in asked]
            and needs(held) == needs(asked)
        )

    def _has_the_form(self, workload: Workload) -> bool:
        about = workload.metadata
        if FORM in about.annotations:
            return about.annotations[FORM] == self.demand.form
        return about.labels.get(JOB_UID) == self.demand.uid  # of an earlier release


def covers(workload: Workload, asked: Iterable[PodSet]) -> bool:
    """Whether a Workload is for pods that ask for so much."""
    held = {each.name: each for each in workload.spec.pod_sets}
    return all(each.name in held and _fits(each, held[each.name]) for each in asked)


def _fits(asked: PodSet, held: PodSet) -> bool:
    most = pod_requests(held.template.get("spec") or {})
    one = pod_requests(asked.template.get("spec") or {})
    within = all(name in most and amount.value <= most[name].value for name, amount in one.items())
    return asked.count <= held.count and within


def obstacle(workload: Workload) -> str:
    """Return why no larger Workload can take the place of one that is admitted, "" where one can."""
    given = workload.status.admission.pod_set_assignments if workload.status.admission else ()
    if any(each.topology_assignment is not None for each in given):
        return "Kueue has chosen its machines"
    return "it has admission checks" if workload.status.admission_checks else ""


def never(empty: Market, queue: str, demand: QueueRequest, base: Workload | None) -> str:
    """Return why a queue could not ever give a job what it runs at least, "" where it could.

    `empty`: all quota, as if nothing used it. A job that has a base stays in the flavours of that.
    """
    if base is not None and base.has_quota and not covers(base, demand.least):
        if demand.prebuilt:
            return f"Workload {base.metadata.name} was made beforehand, and does not grow"
        if why := obstacle(base):
            return f"Workload {base.metadata.name} cannot grow while the job runs, since {why}"
    own = empty.queues.get(queue)
    if own is None or empty.tree.root(own) is None:
        return ""
    for name, amount in sorted(needs(demand.least).items()):
        flavors = _flavors(empty, queue, name, base)
        most = sum(empty.available(queue, (flavor, name)) for flavor in flavors)
        if amount.value > most and (flavors or name not in empty.ignored):
            of = f" of flavor {', '.join(flavors)}" if flavors else ""
            left = type(amount)(Fraction(max(most, 0)))
            return f"queue {demand.queue} has {left} {name}{of} at most, and the job would need {amount}"
    return ""


def _flavors(empty: Market, queue: str, resource: str, base: Workload | None) -> list[str]:
    """The flavours of which a job may get a resource."""
    admission = base.status.admission if base is not None and base.has_quota else None
    sets = admission.pod_set_assignments if admission else ()
    given = {each.flavors[resource] for each in sets if resource in each.flavors}
    return sorted(given or {flavor for flavor, name in empty.queues[queue].limits if name == resource})

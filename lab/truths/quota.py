"""What pods use and Workloads hold, at one instant: the rules that no interleaving may break. Pure.

    each pod that holds resources is in a Workload of its job, which holds quota for it
    the pods of each Workload, and of each of its pod sets, ask for no more than that holds
    the pods of all Workloads of a ClusterQueue ask of each flavor for no more than it has and may borrow
    the pods of a cohort ask for no more than its quotas, of which a queue keeps what it does not lend

A Workload that someone else has deactivated is excused until it has returned its quota. Kueue counts nothing
for it from that instant on, and its pods need a moment to leave. If it is activated in that moment, it holds
quota that Kueue has given away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from math import inf
from typing import Any, Final, TypeVar

from elasticjob.api.resources import Amount, pod_requests
from lab.story import Truth

Object = Mapping[str, Any]
Number = Fraction | int | float
T = TypeVar("T")
REMEMBERED: Final = 4096
"""Objects of which a result is kept at most; while it is, no other object has its identity."""

RESOURCE: Final = "cpu"
WORKLOAD_OF: Final = "kueue.x-k8s.io/workload"
CHAIN: Final = "kueue.x-k8s.io/workload-slice-name"
"""The first Workload of a chain of replacements, which the pods of all of them name."""
POD_SET: Final = "kueue.x-k8s.io/podset"
ENDED: Final = ("Succeeded", "Failed")
LABEL_JOB: Final = "elasticjob.dlrover/name"
"""Of our Workloads, of which the pods are counted; all that others hold is counted as used."""


def remembered(of: Callable[[Object], T]) -> Callable[[Object], T]:
    """Return a function that computes once for each object; objects are never changed in place."""
    known = dict[int, tuple[Object, T]]()

    @wraps(of)
    def recall(thing: Object) -> T:
        found = known.get(id(thing))
        if found is None:
            if len(known) >= REMEMBERED:
                known.clear()
            found = known[id(thing)] = thing, of(thing)
        return found[1]

    return recall


@dataclass(frozen=True)
class Queue:
    """The quota of a ClusterQueue for one flavor of one resource."""

    name: str
    nominal: Number
    cohort: str = ""
    borrowing: Number = inf
    lending: Number = inf
    flavor: str = "default"

    @property
    def own(self) -> Number:
        """The part of the quota that the queue keeps for itself."""
        return max(0, self.nominal - self.lending) if self.cohort else self.nominal


def breaches(
    pods: Iterable[Object],
    workloads: Iterable[Object],
    queues: Iterable[Queue],
    excused: Collection[str] = (),
) -> list[str]:
    """Return what is wrong, in sentences; `excused` are names of Workloads."""
    held = {chain_of(each): each for each in sorted(workloads, key=_holds_last)}
    live = [p for p in pods if _holds_resources(p) and workload_of(p) not in excused]
    found = [sentence for pod in live if (sentence := _homeless(pod, held.get(workload_of(pod))))]
    used = dict[tuple[str, str], Number]()
    counts = Counter[tuple[str, str]]()
    for pod in live:
        place = workload_of(pod), pod["metadata"].get("labels", {}).get(POD_SET, "")
        if place[0] in held and holds(held[place[0]]):
            counts[place] += 1
            used[place] = used.get(place, 0) + request(pod["spec"])
    found += [s for place, n in counts.items() for s in _crowded(held[place[0]], place[1], n, used[place])]
    total = dict[tuple[str, str], Number]()
    for name, workload in held.items():
        if holds(workload) and name not in excused:
            queue = workload["status"]["admission"]["clusterQueue"]
            ours, all_ = LABEL_JOB in workload["metadata"].get("labels", {}), amounts(workload)
            for role, flavor in flavors(workload).items():
                amount = used.get((name, role), 0) if ours else all_[role]
                total[queue, flavor] = total.get((queue, flavor), 0) + amount
    return [*found, *_beyond(total, tuple(queues))]


def _homeless(pod: Object, workload: Object | None) -> str:
    name, of = pod["metadata"]["name"], workload_of(pod)
    if workload is None:
        return f"pod {name} is in Workload {of!r}, which is not there"
    return "" if holds(workload) else f"pod {name} is in Workload {of}, which holds nothing: {told(workload)}"


def _crowded(workload: Object, role: str, count: int, used: Number) -> Iterator[str]:
    name, most, amount = workload["metadata"]["name"], places(workload, role), amounts(workload).get(role, 0)
    if count > most:
        yield f"{count} pods of {role} are in Workload {name}, which is for {most}"
    if used > amount:
        yield f"pods of {role} ask for {used} in Workload {name}, which holds {amount}"


def _beyond(total: Mapping[tuple[str, str], Number], queues: tuple[Queue, ...]) -> Iterator[str]:
    for each in queues:
        most = each.nominal + (each.borrowing if each.cohort else 0)
        used = total.get((each.name, each.flavor), 0)
        if used > most:
            yield f"{used} is used of {each.flavor} in ClusterQueue {each.name}, which has {most}"
    for cohort, flavor in sorted({(each.cohort, each.flavor) for each in queues if each.cohort}):
        mine = [each for each in queues if (each.cohort, each.flavor) == (cohort, flavor)]
        most = sum(each.nominal - each.own for each in mine)
        used = sum(max(0, total.get((each.name, flavor), 0) - each.own) for each in mine)
        if used > most:
            yield f"{used} of {flavor} is borrowed or lent in cohort {cohort}, which has {most}"


def chain_of(workload: Object) -> str:
    """Return the name of a Workload in its pods."""
    about = workload["metadata"]
    return str(about.get("annotations", {}).get(CHAIN) or about["name"])


def _holds_last(workload: Object) -> tuple[bool, bool]:
    return holds(workload), CHAIN in workload["metadata"].get("annotations", {})


def workload_of(pod: Object) -> str:
    """Return the name of the Workload that a pod is in, "" for none."""
    return str(pod["metadata"].get("annotations", {}).get(WORKLOAD_OF, ""))


def _holds_resources(pod: Object) -> bool:
    """Whether a pod has not ended, and is not behind a gate."""
    return pod.get("status", {}).get("phase") not in ENDED and not pod["spec"].get("schedulingGates")


@remembered
def holds(workload: Object) -> bool:
    """Whether Kueue counts quota for a Workload."""
    reserved = is_true(workload, "QuotaReserved") and bool(workload["status"].get("admission"))
    return reserved and not is_true(workload, "Finished") and workload["spec"].get("active", True)


def usage(workload: Object) -> Number:
    """Return what a Workload that holds quota uses."""
    return sum(amounts(workload).values())


@remembered
def amounts(workload: Object) -> dict[str, Number]:
    """Return what each pod set of a Workload that holds quota uses."""
    found = dict[str, Number]()
    for given in workload["status"]["admission"]["podSetAssignments"]:
        one = Amount.parse(given.get("resourceUsage", {}).get(RESOURCE, 0)).value
        count = given.get("count") or 0
        found[given["name"]] = one * places(workload, given["name"]) / count if count else 0
    return found


def flavors(workload: Object) -> dict[str, str]:
    """Return the flavor of each pod set of a Workload that holds quota."""
    given = workload["status"]["admission"]["podSetAssignments"]
    return {each["name"]: each.get("flavors", {}).get(RESOURCE, "default") for each in given}


def places(workload: Object, role: str) -> int:
    """Return for how many pods of a pod set a Workload holds quota."""
    asked = {each["name"]: each.get("count", 1) for each in workload["spec"]["podSets"]}
    given = {e["name"]: e.get("count", 0) for e in workload["status"]["admission"]["podSetAssignments"]}
    done = {each["name"]: each["count"] for each in workload["status"].get("reclaimablePods", [])}
    return int(max(0, min(asked.get(role, 0), given.get(role, 0)) - done.get(role, 0)))


@remembered
def request(spec: Object) -> Number:
    """Return what a pod asks for."""
    amount = pod_requests(dict(spec)).get(RESOURCE)
    return amount.value if amount else 0


def is_true(thing: Object, type_: str) -> bool:
    """Whether a condition is True."""
    found = thing.get("status", {}).get("conditions", ())
    return any(each["type"] == type_ and each["status"] == "True" for each in found)


def told(thing: Object) -> str:
    """Return the conditions of an object in words."""
    found = thing.get("status", {}).get("conditions", ())
    return ", ".join(f"{each['type']}={each['status']}/{each['reason']}" for each in found) or "no condition"


def _breaches(scene: Any) -> list[str]:
    """Return what is wrong with the pods of jobs now."""
    pods, workloads = (objects.values() for objects in scene.yard.watch.objects.values())
    ours = [pod for pod in pods if LABEL_JOB in pod["metadata"].get("labels", {})]
    return breaches(ours, workloads, QUEUES)


NOMINAL: Final = 3
QUEUES: Final = (Queue("a", NOMINAL, "c"), Queue("b", NOMINAL, "c"))
TRUTHS: Final = (Truth("quota", lambda scene: scene.left, _breaches),)

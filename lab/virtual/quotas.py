"""Quota in the model of Kueue, as in its `pkg/cache/scheduler/resource_node.go` of 0.19.2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from elasticjob.kube.objects.kinds import Manifest
from lab.truths.quota import RESOURCE, Number, Queue, amounts, flavors

Cell = tuple[str, str]
"""A ClusterQueue and a flavor."""
EVICTING: Final = ("NoSchedule", "NoExecute")


@dataclass
class Market:
    """Quota and usage of all ClusterQueues, by flavor."""

    cells: Mapping[Cell, Queue]
    used: dict[Cell, Number]

    def copy(self) -> Market:
        return Market(self.cells, dict(self.used))

    def add(self, queue: str, asked: Mapping[str, Number], sign: int = 1) -> None:
        for flavor, amount in asked.items():
            self.used[queue, flavor] = self.used.get((queue, flavor), 0) + sign * amount

    def flavors(self, queue: str) -> list[str]:
        """The flavors of a queue, in its order."""
        return [flavor for name, flavor in self.cells if name == queue]

    def borrows(self, queue: str, flavors: Iterable[str], more: Mapping[str, Number] | None = None) -> bool:
        """Whether a queue has more than its own of one of the flavors, or would have with `more`."""
        return any(
            self.used.get((queue, flavor), 0) + (more or {}).get(flavor, 0)
            > self.cells[queue, flavor].nominal
            for flavor in flavors
            if (queue, flavor) in self.cells
        )

    def available(self, queue: str, flavor: str) -> Number:
        own = self.cells.get((queue, flavor))
        if own is None:
            return -1
        used = self.used.get((queue, flavor), 0)
        if not own.cohort:
            return own.nominal - used
        mine = self._cohort(own)
        left = sum(each.nominal - each.own for each in mine)
        left -= sum(max(0, self.used.get((each.name, flavor), 0) - each.own) for each in mine)
        limit = own.nominal - own.own - max(0, used - own.own) + own.borrowing
        return max(0, own.own - used) + min(left, limit)

    def capacity(self, queue: str, flavor: str) -> Number:
        """Return the capacity of a queue for a flavor while nothing is used."""
        return Market(self.cells, {}).available(queue, flavor)

    def fits(self, queue: str, asked: Mapping[str, Number], *, borrow: bool) -> bool:
        enough = all(self.available(queue, flavor) >= amount for flavor, amount in asked.items())
        return enough and (borrow or not self.borrows(queue, asked, asked))

    def _cohort(self, own: Queue) -> list[Queue]:
        return [e for e in self.cells.values() if (e.cohort, e.flavor) == (own.cohort, own.flavor)]


def cells_of(found: Manifest) -> list[Queue]:
    """Return the quota of a ClusterQueue of one resource for each of its flavors, in its order."""
    spec, cohort = found["spec"], found["spec"].get("cohortName", "")
    made = []
    for flavor in spec["resourceGroups"][0]["flavors"]:
        [quota] = flavor["resources"]
        limits = {
            name: int(quota[f"{name}Limit"])
            for name in ("borrowing", "lending")
            if quota.get(f"{name}Limit") is not None
        }
        nominal = int(quota["nominalQuota"])
        made.append(Queue(found["metadata"]["name"], nominal, cohort, flavor=flavor["name"], **limits))
    return made


def usage_of(workload: Manifest) -> dict[str, Number]:
    """Return the usage of a Workload that holds quota, by flavor."""
    found = dict[str, Number]()
    by_role = amounts(workload)
    for role, flavor in flavors(workload).items():
        found[flavor] = found.get(flavor, 0) + by_role[role]
    return found


def matches(pod: Manifest, flavor: Manifest) -> bool:
    """Whether pods of a spec may be on the machines of a flavor: its taints, and its labels."""
    spec = flavor.get("spec", {})
    labels, chosen = spec.get("nodeLabels", {}), pod.get("nodeSelector") or {}
    tolerated = {each.get("key") for each in pod.get("tolerations") or ()}
    taints = {each["key"] for each in spec.get("nodeTaints", ()) if each["effect"] in EVICTING}
    return taints <= tolerated and all(labels[key] == value for key, value in chosen.items() if key in labels)


def assigned(pod_set: Manifest, flavor: str, amount: Number) -> Manifest:
    """Return the assignment of a pod set in an admission."""
    return {
        "name": pod_set["name"],
        "flavors": {RESOURCE: flavor},
        "resourceUsage": {RESOURCE: f"{int(amount * 1000)}m"},
        "count": pod_set["count"],
    }

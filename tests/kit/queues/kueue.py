"""A model of Kueue 0.19: it admits, preempts, evicts and requeues, as was seen of the real one.

usage       of all that hold quota: reserved, active, not finished; evicted ones too until they give it back
admission   by priority, then by age; a Workload that waits for its victims is not overtaken in its queue
preemption  LowerPriority within a queue; reclaimWithinCohort Any, from queues that borrow
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any, Final

from benchmarks.chaos.quota import Number, Queue, holds, is_true, request, usage
from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.queues.server import Server

FLAVOR: Final = "default"
AFTER: Final = {
    "Deactivated": "Reactivated",
    "LocalQueueStopped": "LocalQueueRestarted",
    "ClusterQueueStopped": "ClusterQueueRestarted",
}


@dataclass
class Kueue:
    """One look at everything at a time. Without `up`, nothing happens."""

    server: Server
    up: bool = True
    preemptors: dict[str, str] = field(default_factory=dict)
    """The Workload of each queue that has preempted others: it is looked at first until it is admitted."""

    def queues(self) -> dict[str, Queue]:
        return {each["metadata"]["name"]: queue_of(each) for each in self.server.every(CLUSTER_QUEUE)}

    def look(self) -> None:
        """Evict, requeue, and admit what is to be."""
        for each in self.server.every(WORKLOAD):
            self._keep(each)
        self._schedule()

    def _keep(self, workload: Manifest) -> None:
        if is_true(workload, "Finished"):
            return
        if "deletionTimestamp" in workload["metadata"]:
            if not workload["metadata"].get("ownerReferences"):
                about = {**workload["metadata"], "finalizers": []}
                self.server.change(WORKLOAD, workload, metadata=about)
            return
        stopped = self._stopped(workload)
        if reserved(workload):
            why = "" if workload["spec"].get("active", True) else "Deactivated"
            why = why or next((why for why, policy in stopped if policy == "HoldAndDrain"), "")
            if why and not is_true(workload, "Evicted"):
                self.tell(workload, Evicted=("True", why))
            return
        requeued = condition(workload, "Requeued")
        if not workload["spec"].get("active", True):
            if condition(workload, "Evicted") != ("True", "Deactivated"):
                self.tell(workload, Evicted=("True", "Deactivated"), Requeued=("False", "Deactivated"))
        elif requeued[0] == "False" and not stopped:
            self.tell(workload, Requeued=("True", AFTER.get(requeued[1], "Requeued")))
        elif stopped and condition(workload, "QuotaReserved") != ("False", "Inadmissible"):
            self.tell(workload, QuotaReserved=("False", "Inadmissible"))

    def _stopped(self, workload: Manifest) -> list[tuple[str, str]]:
        local = self.server.found(
            LOCAL_QUEUE, workload["spec"]["queueName"], workload["metadata"]["namespace"]
        )
        if local is None:
            return [("LocalQueueStopped", "Hold")]
        queue = self.server.found(CLUSTER_QUEUE, local["spec"]["clusterQueue"])
        policies = (
            ("LocalQueueStopped", local["spec"].get("stopPolicy", "None")),
            ("ClusterQueueStopped", queue["spec"].get("stopPolicy", "None") if queue else "Hold"),
        )
        return [(why, policy) for why, policy in policies if policy != "None"]

    def queue_of(self, workload: Manifest) -> str:
        if admission := workload.get("status", {}).get("admission"):
            return str(admission["clusterQueue"])
        local = self.server.found(
            LOCAL_QUEUE, workload["spec"]["queueName"], workload["metadata"]["namespace"]
        )
        return str(local["spec"]["clusterQueue"]) if local else ""

    def _schedule(self) -> None:
        market = _Market(self.queues(), {})
        every = self.server.every(WORKLOAD)
        counted = [each for each in every if holds(each)]
        for each in counted:
            market.add(self.queue_of(each), usage(each))
        waiting = sorted((each for each in every if self._waits(each)), key=_order)
        while waiting:
            heads = {self.queue_of(each): each for each in reversed(waiting)}
            heads |= {
                self.queue_of(e): e for e in waiting if e["metadata"]["name"] in self.preemptors.values()
            }
            each = min(
                heads.values(), key=lambda e: (market.would_borrow(self.queue_of(e), needs(e)), _order(e))
            )
            waiting.remove(each)
            queue, asked = self.queue_of(each), needs(each)
            if market.available(queue) >= asked:
                self.preemptors.pop(queue, None)
                self._admit(each, queue)
                market.add(queue, asked)
            elif victims := self._victims(each, queue, asked, market, counted):
                for victim in victims:
                    if not is_true(victim, "Evicted"):
                        why = "InClusterQueue" if self.queue_of(victim) == queue else "InCohortReclamation"
                        self.tell(victim, Evicted=("True", "Preempted"), Preempted=("True", why))
                self.preemptors[queue] = each["metadata"]["name"]
                return
            elif condition(each, "QuotaReserved") != ("False", "Pending"):
                self.tell(each, QuotaReserved=("False", "Pending"))

    def _waits(self, workload: Manifest) -> bool:
        if reserved(workload) or is_true(workload, "Finished") or not workload["spec"].get("active", True):
            return False
        if "deletionTimestamp" in workload["metadata"] or self._stopped(workload):
            return False
        return condition(workload, "Requeued")[0] != "False"

    def _admit(self, workload: Manifest, queue: str) -> None:
        sets = workload["spec"]["podSets"]
        given = [
            {
                "name": each["name"],
                "flavors": {"cpu": FLAVOR},
                "resourceUsage": {"cpu": str(request(each["template"]["spec"]) * each["count"])},
                "count": each["count"],
            }
            for each in sets
        ]
        admission = {"clusterQueue": queue, "podSetAssignments": given}
        changed = {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted")}
        for type_ in ("Evicted", "Preempted"):
            if condition(workload, type_)[0]:
                changed[type_] = ("False", "QuotaReserved")
        self.tell(workload, admission=admission, **changed)

    def _victims(
        self, workload: Manifest, queue: str, asked: Number, market: _Market, counted: Iterable[Manifest]
    ) -> list[Manifest]:
        """The fewest, the youngest of the least important first, other queues' before one's own."""
        mine = [e for e in counted if self.queue_of(e) == queue and priority(e) < priority(workload)]
        other = [e for e in counted if self.queue_of(e) != queue]
        for candidates, reclaims in ((other + mine, True), (mine, False)):
            left = market.copy()
            found: list[Manifest] = []
            for each in sorted(candidates, key=lambda e: self._rank(e, queue), reverse=True):
                theirs = self.queue_of(each)
                if theirs != queue and not left.borrows(theirs):
                    continue
                left.add(theirs, -usage(each))
                found.append(each)
                if left.fits(queue, asked, within=reclaims):
                    break
            if not left.fits(queue, asked, within=reclaims):
                continue
            for each in tuple(found[:-1]):
                left.add(self.queue_of(each), usage(each))
                if left.fits(queue, asked, within=reclaims):
                    found.remove(each)
                else:
                    left.add(self.queue_of(each), -usage(each))
            return found
        return []

    def _rank(self, workload: Manifest, queue: str) -> tuple[Any, ...]:
        return is_true(workload, "Evicted"), self.queue_of(workload) != queue, _order(workload)

    def tell(self, workload: Manifest, *, admission: Any = None, **changes: tuple[str, str]) -> None:
        """Write conditions: status and reason by type."""
        about = workload["metadata"]
        now = self.server.found(WORKLOAD, about["name"], about["namespace"])
        if now is None:
            return
        status = dict(now.get("status", {}))
        status["conditions"] = changed(status.get("conditions", []), changes, self.server.clock.now())
        if admission is not None:
            status["admission"] = admission
        self.server.change(WORKLOAD, now, status=status)


@dataclass
class _Market:
    queues: dict[str, Queue]
    used: dict[str, Number]

    def copy(self) -> _Market:
        return _Market(self.queues, dict(self.used))

    def add(self, queue: str, amount: Number) -> None:
        self.used[queue] = self.used.get(queue, 0) + amount

    def borrows(self, queue: str) -> bool:
        return queue in self.queues and self.used.get(queue, 0) > self.queues[queue].nominal

    def would_borrow(self, queue: str, asked: Number) -> bool:
        return queue in self.queues and self.used.get(queue, 0) + asked > self.queues[queue].nominal

    def available(self, queue: str) -> Number:
        own = self.queues.get(queue)
        if own is None:
            return -1
        mine = [
            each for each in self.queues.values() if each == own or (own.cohort and each.cohort == own.cohort)
        ]
        left = sum(each.nominal for each in mine) - sum(self.used.get(each.name, 0) for each in mine)
        return min(left, own.nominal + (own.borrowing if own.cohort else 0) - self.used.get(queue, 0))

    def fits(self, queue: str, asked: Number, *, within: bool) -> bool:
        nominal = self.used.get(queue, 0) + asked <= self.queues[queue].nominal
        return self.available(queue) >= asked and (nominal or not within)


def queue_of(found: Manifest) -> Queue:
    """A ClusterQueue of one flavour of one resource."""
    spec = found["spec"]
    [quota] = spec["resourceGroups"][0]["flavors"][0]["resources"]
    limit = quota.get("borrowingLimit")
    borrowing = inf if limit is None else int(limit)
    return Queue(found["metadata"]["name"], int(quota["nominalQuota"]), spec.get("cohortName", ""), borrowing)


def changed(found: Iterable[Manifest], changes: dict[str, tuple[str, str]], now: datetime) -> list[Manifest]:
    """Conditions with others in their place or at the end."""
    made = {each["type"]: each for each in found}
    for type_, (status, reason) in changes.items():
        made[type_] = {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": f"because of {reason}",
            "lastTransitionTime": timestamp(now),
        }
    return list(made.values())


def condition(workload: Manifest, type_: str) -> tuple[str, str]:
    found = workload.get("status", {}).get("conditions", ())
    return next(((each["status"], each["reason"]) for each in found if each["type"] == type_), ("", ""))


def reserved(workload: Manifest) -> bool:
    return is_true(workload, "QuotaReserved")


def needs(workload: Manifest) -> Number:
    found: Number = 0
    for each in workload["spec"]["podSets"]:
        found += request(each["template"]["spec"]) * each["count"]
    return found


def priority(workload: Manifest) -> int:
    return int(workload["spec"].get("priority") or 0)


def _order(workload: Manifest) -> tuple[int, str, str]:
    return -priority(workload), workload["metadata"]["creationTimestamp"], workload["metadata"]["name"]

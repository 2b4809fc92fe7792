"""A model of the scheduler of Kueue 0.19.2, in cycles as in its `pkg/scheduler/scheduler.go`.

usage        of all that hold quota: reserved, active, not finished; evicted ones too until they give it back
head         of each queue: the one that has preempted others, then by priority, then by age
cycle        heads that need not borrow first; one that waits for its victims keeps what it needs
preemption   only for as much as the queue's own quota: LowerPriority within a queue; reclaimWithinCohort Any,
             from queues that borrow, and not to borrow
replacement  of a Workload that holds quota: for the difference alone; the other one is finished then
inadmissible what neither fits nor preempts waits until quota is returned, and a second more
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final

from benchmarks.chaos.quota import Number, Queue, holds, is_true, request, usage
from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, LOCAL_QUEUE, REPLACES, WORKLOAD
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.queues.server import Server

FLAVOR: Final = "default"
BATCH: Final = timedelta(seconds=1)
"""Kueue's requeueBatchPeriod: how long after quota was returned it looks at inadmissible Workloads again."""
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
    inadmissible: dict[str, Any] = field(default_factory=dict)
    """Workloads by name as they were when they neither fitted nor preempted."""
    retry: datetime | None = None
    """When they are looked at again."""
    refused: set[str] = field(default_factory=set)
    """Workloads that are never admitted, for reasons that are not modelled."""
    _seen: tuple[dict[str, Queue], dict[str, Number]] = field(default_factory=lambda: ({}, {}))

    def queues(self) -> dict[str, Queue]:
        return {each["metadata"]["name"]: queue_of(each) for each in self.server.every(CLUSTER_QUEUE)}

    def look(self) -> timedelta | None:
        """Evict, requeue, and admit what is to be; returns when to look again."""
        for each in self.server.every(WORKLOAD):
            self._keep(each)
        now, queues = self.server.clock.now(), self.queues()
        held = {each["metadata"]["uid"]: usage(each) for each in self.server.every(WORKLOAD) if holds(each)}
        before, had = self._seen
        if before != queues or any(held.get(uid, 0) < amount for uid, amount in had.items()):
            self.retry = self.retry or now + BATCH
        if self.retry and self.retry <= now:
            self.inadmissible, self.retry = {}, None
        while self._cycle():
            pass
        held = {each["metadata"]["uid"]: usage(each) for each in self.server.every(WORKLOAD) if holds(each)}
        self._seen = queues, held
        return self.retry - now if self.retry else None

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

    def _cycle(self) -> bool:
        """Look at the head of each queue; returns whether the next heads may be others."""
        every, market = self.server.every(WORKLOAD), _Market(self.queues(), {})
        counted = [each for each in every if holds(each)]
        for each in counted:
            market.add(self.queue_of(each), usage(each))
        plans = [self._plan(each, market, counted) for each in self._heads(every)]
        moved, preempted = False, list[Manifest]()
        for _, _, each, victims in sorted(plans, key=lambda plan: plan[:2]):
            name, queue, asked = each["metadata"]["name"], self.queue_of(each), self._asked(each)
            if victims is None:
                self.inadmissible[name] = _state(each)
                if condition(each, "QuotaReserved") != ("False", "Pending"):
                    self.tell(each, QuotaReserved=("False", "Pending"))
                moved = True
                continue
            after = market.copy()
            for victim in (*preempted, *victims):
                after.add(self.queue_of(victim), -usage(victim))
            if any(victim in preempted for victim in victims) or after.available(queue) < asked:
                continue
            market.add(queue, asked)
            if victims:
                moved |= self._preempt(each, victims)
                preempted += victims
            else:
                self._admit(each, queue)
                moved = True
        return moved

    def _heads(self, every: Iterable[Manifest]) -> list[Manifest]:
        waiting = [e for e in every if self._waits(e) and e["metadata"]["name"] not in self.refused]
        states = {each["metadata"]["name"]: _state(each) for each in waiting}
        self.inadmissible = {n: state for n, state in self.inadmissible.items() if states.get(n) == state}
        self.preemptors = {queue: name for queue, name in self.preemptors.items() if name in states}
        heads: dict[str, Manifest] = {}
        for each in sorted(waiting, key=lambda e: (not self._has_preempted(e), _order(e))):
            if each["metadata"]["name"] not in self.inadmissible:
                heads.setdefault(self.queue_of(each), each)
        return list(heads.values())

    def _has_preempted(self, workload: Manifest) -> bool:
        name: str = workload["metadata"]["name"]
        return self.preemptors.get(self.queue_of(workload)) == name

    def _plan(self, workload: Manifest, market: _Market, counted: list[Manifest]) -> _Plan:
        queue, asked = self.queue_of(workload), self._asked(workload)
        after, victims = market.copy(), list[Manifest]()
        if market.available(queue) < asked:
            victims = self._victims(workload, queue, asked, market, counted)
            for each in victims:
                after.add(self.queue_of(each), -usage(each))
        fits = after.available(queue) >= asked
        return after.would_borrow(queue, asked), _order(workload), workload, victims if fits else None

    def _preempt(self, workload: Manifest, victims: Iterable[Manifest]) -> bool:
        """Evict Workloads for another one; returns whether any of them was not evicted already."""
        queue = self.queue_of(workload)
        self.preemptors[queue] = workload["metadata"]["name"]
        fresh = [victim for victim in victims if not is_true(victim, "Evicted")]
        for victim in fresh:
            why = "InClusterQueue" if self.queue_of(victim) == queue else "InCohortReclamation"
            self.tell(victim, Evicted=("True", "Preempted"), Preempted=("True", why))
        return bool(fresh)

    def _replaced(self, workload: Manifest) -> Manifest | None:
        """The Workload whose quota this one takes over (its workloadslicing.go)."""
        _, _, name = workload["metadata"].get("annotations", {}).get(REPLACES, "").rpartition("/")
        found = self.server.found(WORKLOAD, name, workload["metadata"]["namespace"]) if name else None
        same = found and holds(found) and self.queue_of(found) == self.queue_of(workload)
        return found if same else None

    def _asked(self, workload: Manifest) -> Number:
        old = self._replaced(workload)
        return needs(workload) - (usage(old) if old else 0)

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
        old = self._replaced(workload)
        self.tell(workload, admission=admission, **changed)
        if old is not None:
            self.tell(old, Finished=("True", "WorkloadSliceReplaced"))

    def _victims(
        self, workload: Manifest, queue: str, asked: Number, market: _Market, counted: Iterable[Manifest]
    ) -> list[Manifest]:
        """Kueue's classicalPreemptions; its FlavorAssigner preempts nothing to borrow."""
        own = market.queues.get(queue)
        if own is None or asked > own.nominal:
            return []
        lower = [e for e in counted if self.queue_of(e) == queue and priority(e) < priority(workload)]
        others = [e for e in counted if self.queue_of(e) != queue and market.borrows(self.queue_of(e))]
        attempts = [(lower, True)]
        if others and market.used.get(queue, 0) < own.nominal:
            within = not market.would_borrow(queue, asked)
            attempts = [(others + lower, True)] if within else [(others + lower, False), (lower, True)]
        found = (self._fewest(some, queue, asked, market.copy(), borrow=to) for some, to in attempts)
        return next((victims for victims in found if victims), [])

    def _fewest(
        self, candidates: Iterable[Manifest], queue: str, asked: Number, left: _Market, *, borrow: bool
    ) -> list[Manifest]:
        """Others' before one's own, the least important first, then those that were admitted last."""

        def rank(each: Manifest) -> tuple[Any, ...]:
            return not is_true(each, "Evicted"), self.queue_of(each) == queue, priority(each)

        found: list[Manifest] = []
        for each in sorted(sorted(candidates, key=_reserved_at, reverse=True), key=rank):
            theirs = self.queue_of(each)
            if theirs != queue and not left.borrows(theirs):
                continue
            left.add(theirs, -usage(each))
            found.append(each)
            if left.fits(queue, asked, borrow=borrow):
                break
        else:
            return []
        for each in tuple(reversed(found[:-1])):
            left.add(self.queue_of(each), usage(each))
            if left.fits(queue, asked, borrow=borrow):
                found.remove(each)
            else:
                left.add(self.queue_of(each), -usage(each))
        return found

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


_Plan = tuple[bool, tuple[int, str, str], Manifest, list[Manifest] | None]
"""Whether it would borrow, its order, the Workload, and whom it preempts; None: it is inadmissible."""


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

    def fits(self, queue: str, asked: Number, *, borrow: bool) -> bool:
        return self.available(queue) >= asked and (borrow or not self.would_borrow(queue, asked))


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


def _state(workload: Manifest) -> Any:
    """What puts a Workload that is inadmissible before the scheduler again."""
    return workload["spec"], condition(workload, "Evicted"), condition(workload, "Requeued")


def _reserved_at(workload: Manifest) -> tuple[str, str]:
    found = workload["status"]["conditions"]
    at = next(each["lastTransitionTime"] for each in found if each["type"] == "QuotaReserved")
    return at, workload["metadata"]["uid"]

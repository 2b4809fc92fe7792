"""A model of the scheduler of Kueue 0.19.2, in cycles as in its `pkg/scheduler/scheduler.go`.

usage        of all that hold quota: reserved, active, not finished; evicted ones too until they give it back
head         of each queue: the one that has preempted others, then by priority, then by age; of a StrictFIFO
             queue, the same one until it is admitted
flavor       of each pod set, one after another: the first with room; else the first from which others can be
             evicted, by reclaiming before preempting
cycle        heads that need not borrow first; one that waits for its victims keeps what it needs; so does one
             without victims in a queue that does not reclaim from any other
preemption   for as much as the queue has itself: within it, and from queues that borrow, as its policies say
replacement  of a Workload that holds quota: for the difference alone; the other one is finished then
inadmissible what neither fits nor preempts waits until quota is returned, and a second more
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final, NamedTuple

from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, FLAVOR, LOCAL_QUEUE, REPLACES, WORKLOAD
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Manifest
from lab.truths.quota import Number, Queue, flavors, holds, is_true, request
from lab.virtual.quotas import Cell, Market, assigned, cells_of, matches, usage_of
from lab.virtual.server import Server

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
    _seen: tuple[list[Manifest], dict[str, Number]] = field(default_factory=lambda: ([], {}))

    def cells(self) -> dict[Cell, Queue]:
        every = (cell for each in self.server.every(CLUSTER_QUEUE) for cell in cells_of(each))
        return {(each.name, each.flavor): each for each in every}

    def spec(self, queue: str) -> Manifest:
        """Return the spec of a ClusterQueue, {} without one."""
        found = self.server.found(CLUSTER_QUEUE, queue)
        return found["spec"] if found else {}

    def counted(self) -> list[Manifest]:
        return [each for each in self.server.every(WORKLOAD) if holds(each)]

    def market(self, counted: Iterable[Manifest]) -> Market:
        """All quota, used by some Workloads."""
        made = Market(self.cells(), {})
        for each in counted:
            made.add(self.queue_of(each), usage_of(each))
        return made

    def look(self) -> timedelta | None:
        """Evict, requeue, and admit what is to be; returns when to look again."""
        for each in self.server.every(WORKLOAD):
            self._keep(each)
        now, queues = self.server.clock.now(), self.server.every(CLUSTER_QUEUE)
        held = self._held()
        before, had = self._seen
        if before != queues or any(held.get(uid, 0) < amount for uid, amount in had.items()):
            self.retry = self.retry or now + BATCH
        if self.retry and self.retry <= now:
            self.inadmissible, self.retry = {}, None
        while self._cycle():
            pass
        self._seen = queues, self._held()
        return self.retry - now if self.retry else None

    def _held(self) -> dict[str, Number]:
        return {each["metadata"]["uid"]: sum(usage_of(each).values()) for each in self.counted()}

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
        local = self._local(workload)
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
        local = self._local(workload)
        return str(local["spec"]["clusterQueue"]) if local else ""

    def _local(self, workload: Manifest) -> Manifest | None:
        namespace = workload["metadata"]["namespace"]
        return self.server.found(LOCAL_QUEUE, workload["spec"]["queueName"], namespace)

    def _cycle(self) -> bool:
        """Look at the head of each queue; returns whether the next heads may be others."""
        counted = self.counted()
        market = self.market(counted)
        plans = [self.plan(each, market, counted) for each in self._heads()]
        moved, preempted = False, list[Manifest]()
        for plan in sorted(plans, key=lambda plan: (plan.borrows, order(plan.workload))):
            queue, victims = self.queue_of(plan.workload), plan.victims
            if plan.mode is not Mode.FIT and not victims:
                moved |= self._leave(plan)
                if plan.mode is Mode.NO_CANDIDATES and self._policy(queue, "reclaimWithinCohort") != "Any":
                    market.add(queue, _reserved(plan, market, queue))
                continue
            after = market.copy()
            for victim in (*preempted, *victims):
                after.add(self.queue_of(victim), usage_of(victim), -1)
            overlap = any(victim in preempted for victim in victims)
            if overlap or not after.fits(queue, plan.asked, borrow=True):
                continue
            market.add(queue, plan.asked)
            if victims:
                moved |= self._preempt(plan.workload, victims)
                preempted += victims
            else:
                self._admit(plan, queue)
                moved = True
        return moved

    def _leave(self, plan: Plan) -> bool:
        """Let a Workload wait; returns whether its queue has another head now."""
        name = plan.workload["metadata"]["name"]
        if condition(plan.workload, "QuotaReserved") != ("False", "Pending"):
            self.tell(plan.workload, QuotaReserved=("False", "Pending"))
        if self._strict(self.queue_of(plan.workload)):
            return False
        self.inadmissible[name] = _state(plan.workload)
        return True

    def _strict(self, queue: str) -> bool:
        return self.spec(queue).get("queueingStrategy") == "StrictFIFO"

    def _policy(self, queue: str, name: str) -> str:
        policy: str = self.spec(queue).get("preemption", {}).get(name, "Never")
        return policy

    def waiting(self) -> list[Manifest]:
        """The Workloads that are in a queue."""
        return [each for each in self.server.every(WORKLOAD) if self._waits(each)]

    def _heads(self) -> list[Manifest]:
        waiting = self.waiting()
        states = {each["metadata"]["name"]: _state(each) for each in waiting}
        self.inadmissible = {n: state for n, state in self.inadmissible.items() if states.get(n) == state}
        self.preemptors = {queue: name for queue, name in self.preemptors.items() if name in states}
        heads: dict[str, Manifest] = {}
        for each in sorted(waiting, key=lambda e: (not self._has_preempted(e), order(e))):
            if each["metadata"]["name"] not in self.inadmissible and self.spec(self.queue_of(each)):
                heads.setdefault(self.queue_of(each), each)
        return list(heads.values())

    def _has_preempted(self, workload: Manifest) -> bool:
        name: str = workload["metadata"]["name"]
        return self.preemptors.get(self.queue_of(workload)) == name

    def plan(self, workload: Manifest, market: Market, counted: list[Manifest]) -> Plan:
        """Return the outcome for a Workload now: the flavor of each pod set, and the Workloads to evict."""
        queue, chosen = self.queue_of(workload), dict[str, str]()
        if workload["metadata"]["name"] in self.refused:
            return Plan(workload, Mode.NO_FIT)
        old = self.replaced(workload)
        taken, keep = (usage_of(old), flavors(old)) if old else ({}, {})
        if old is not None:
            market = market.copy()
            market.add(queue, taken, -1)
            counted = [each for each in counted if each["metadata"]["uid"] != old["metadata"]["uid"]]
        worst, asked, short = Mode.FIT, dict[str, Number](), set[str]()
        for each in workload["spec"]["podSets"]:
            amount = request(each["template"]["spec"]) * each["count"]
            mode, flavor = self._flavor(workload, each, amount, asked, market, counted, keep)
            if mode is Mode.NO_FIT:
                return Plan(workload, mode)
            chosen[each["name"]] = flavor
            asked[flavor] = asked.get(flavor, 0) + amount
            worst = min(worst, mode)
            short |= set() if mode is Mode.FIT else {flavor}
        victims = self._victims(workload, queue, asked, short, market, counted) if short else []
        after = market.copy()
        for victim in victims:
            after.add(self.queue_of(victim), usage_of(victim), -1)
        more = {flavor: amount - taken.get(flavor, 0) for flavor, amount in asked.items()}
        return Plan(workload, worst, chosen, more, after.borrows(queue, asked, asked), victims)

    def _flavor(
        self,
        workload: Manifest,
        pod_set: Manifest,
        amount: Number,
        before: dict[str, Number],
        market: Market,
        counted: list[Manifest],
        keep: dict[str, str],
    ) -> tuple[Mode, str]:
        """The flavor of a pod set after those before it, and how it could be had."""
        queue, best = self.queue_of(workload), (Mode.NO_FIT, "")
        for flavor in market.flavors(queue):
            found = self.server.found(FLAVOR, flavor)
            if found is None or not matches(pod_set["template"]["spec"], found):
                continue
            if keep.get(pod_set["name"], flavor) != flavor:
                continue  # a slice has the flavors of the one that it replaces
            mode = self._mode(workload, queue, flavor, before.get(flavor, 0) + amount, market, counted)
            if mode is Mode.FIT:
                return mode, flavor
            if mode > best[0]:
                best = mode, flavor
        return best

    def _mode(
        self,
        workload: Manifest,
        queue: str,
        flavor: str,
        amount: Number,
        market: Market,
        counted: list[Manifest],
    ) -> Mode:
        if amount > market.capacity(queue, flavor):
            return Mode.NO_FIT
        if amount <= market.available(queue, flavor):
            return Mode.FIT
        if amount > market.cells[queue, flavor].nominal:
            return Mode.NO_FIT  # nobody is evicted to borrow
        victims = self._victims(workload, queue, {flavor: amount}, {flavor}, market, counted)
        if not victims:
            return Mode.NO_CANDIDATES
        own = any(self.queue_of(victim) == queue for victim in victims)
        return Mode.PREEMPT if own else Mode.RECLAIM

    def _preempt(self, workload: Manifest, victims: Iterable[Manifest]) -> bool:
        """Evict Workloads for another one; returns whether any of them was not evicted already."""
        queue = self.queue_of(workload)
        self.preemptors[queue] = workload["metadata"]["name"]
        fresh = [victim for victim in victims if not is_true(victim, "Evicted")]
        for victim in fresh:
            why = "InClusterQueue" if self.queue_of(victim) == queue else "InCohortReclamation"
            self.tell(victim, Evicted=("True", "Preempted"), Preempted=("True", why))
        return bool(fresh)

    def replaced(self, workload: Manifest) -> Manifest | None:
        """The Workload whose quota this one takes over (its workloadslicing.go)."""
        _, _, name = workload["metadata"].get("annotations", {}).get(REPLACES, "").rpartition("/")
        found = self.server.found(WORKLOAD, name, workload["metadata"]["namespace"]) if name else None
        same = found and holds(found) and self.queue_of(found) == self.queue_of(workload)
        return found if same else None

    def _waits(self, workload: Manifest) -> bool:
        if reserved(workload) or is_true(workload, "Finished") or not workload["spec"].get("active", True):
            return False
        if "deletionTimestamp" in workload["metadata"] or self._stopped(workload):
            return False
        return condition(workload, "Requeued")[0] != "False"

    def _admit(self, plan: Plan, queue: str) -> None:
        given = [
            assigned(each, plan.flavors[each["name"]], request(each["template"]["spec"]) * each["count"])
            for each in plan.workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": queue, "podSetAssignments": given}
        changed = {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted")}
        for type_ in ("Evicted", "Preempted"):
            if condition(plan.workload, type_)[0]:
                changed[type_] = ("False", "QuotaReserved")
        old = self.replaced(plan.workload)
        self.tell(plan.workload, admission=admission, **changed)
        if old is not None:
            self.tell(old, Finished=("True", "WorkloadSliceReplaced"))

    def _victims(
        self,
        workload: Manifest,
        queue: str,
        asked: dict[str, Number],
        short: set[str],
        market: Market,
        counted: Iterable[Manifest],
    ) -> list[Manifest]:
        """Kueue's classicalPreemptions: whom to evict for flavors that are short."""
        holders = [each for each in counted if short & set(flavors(each).values())]
        within = [e for e in holders if self.queue_of(e) == queue and self._may(workload, e, queue)]
        others = [
            each
            for each in holders
            if self.queue_of(each) != queue
            and market.borrows(self.queue_of(each), short)
            and self._same_cohort(queue, self.queue_of(each))
            and self._may(workload, each, queue)
        ]
        attempts = [(within, True)]
        if others and all(market.used.get((queue, f), 0) < market.cells[queue, f].nominal for f in short):
            own = not market.borrows(queue, asked, asked)
            attempts = [(others + within, True)] if own else [(others + within, False), (within, True)]
        found = (self._fewest(some, queue, asked, short, market.copy(), borrow=to) for some, to in attempts)
        return next((victims for victims in found if victims), [])

    def _may(self, workload: Manifest, victim: Manifest, queue: str) -> bool:
        """Whether the policies of a queue let a Workload evict another one."""
        name = "withinClusterQueue" if self.queue_of(victim) == queue else "reclaimWithinCohort"
        policy = self._policy(queue, name)
        return policy == "Any" or (policy != "Never" and priority(victim) < priority(workload))

    def _same_cohort(self, one: str, other: str) -> bool:
        cohort = self.spec(one).get("cohortName")
        return bool(cohort) and cohort == self.spec(other).get("cohortName")

    def _fewest(
        self,
        candidates: Iterable[Manifest],
        queue: str,
        asked: dict[str, Number],
        short: set[str],
        left: Market,
        *,
        borrow: bool,
    ) -> list[Manifest]:
        """Others' before one's own, the least important first, then those that were admitted last."""

        def rank(each: Manifest) -> tuple[Any, ...]:
            return not is_true(each, "Evicted"), self.queue_of(each) == queue, priority(each)

        found: list[Manifest] = []
        for each in sorted(sorted(candidates, key=_reserved_at, reverse=True), key=rank):
            theirs = self.queue_of(each)
            if theirs != queue and not left.borrows(theirs, short):
                continue
            left.add(theirs, usage_of(each), -1)
            found.append(each)
            if left.fits(queue, asked, borrow=borrow):
                break
        else:
            return []
        for each in tuple(reversed(found[:-1])):
            left.add(self.queue_of(each), usage_of(each))
            if left.fits(queue, asked, borrow=borrow):
                found.remove(each)
            else:
                left.add(self.queue_of(each), usage_of(each), -1)
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


class Mode(IntEnum):
    """How a flavor could be had, the best last."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Plan(NamedTuple):
    """The outcome of a scheduling attempt."""

    workload: Manifest
    mode: Mode
    flavors: dict[str, str] = {}  # noqa: RUF012  # never changed
    asked: dict[str, Number] = {}  # noqa: RUF012
    """Of each flavor."""
    borrows: bool = False
    victims: list[Manifest] = []  # noqa: RUF012


def _reserved(plan: Plan, market: Market, queue: str) -> dict[str, Number]:
    """Return the quota that is reserved in this cycle for a Workload that waits without victims."""
    made = dict[str, Number]()
    for flavor, amount in plan.asked.items():
        cell, used = market.cells[queue, flavor], market.used.get((queue, flavor), 0)
        limit = cell.nominal + (cell.borrowing if plan.borrows else 0) - used
        made[flavor] = max(0, min(amount, limit))
    return made


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


def priority(workload: Manifest) -> int:
    return int(workload["spec"].get("priority") or 0)


def order(workload: Manifest) -> tuple[int, str, str]:
    return -priority(workload), workload["metadata"]["creationTimestamp"], workload["metadata"]["name"]


def _state(workload: Manifest) -> Any:
    """What puts a Workload that is inadmissible before the scheduler again."""
    return workload["spec"], condition(workload, "Evicted"), condition(workload, "Requeued")


def _reserved_at(workload: Manifest) -> tuple[str, str]:
    found = workload["status"]["conditions"]
    at = next(each["lastTransitionTime"] for each in found if each["type"] == "QuotaReserved")
    return at, workload["metadata"]["uid"]

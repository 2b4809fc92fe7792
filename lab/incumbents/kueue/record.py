"""What both sides of a story show: their jobs, the Workloads, pods and quotas of these, by key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD
from lab.clusters.plane.queues import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, conditions
from lab.incumbents.kueue.side import Side, is_slice, job_of, owner
from lab.incumbents.oracle import Facts
from lab.incumbents.side import JOB
from lab.incumbents.watched import Hear

KINDS: Final[tuple[Kind[Any], ...]] = (
    POD.untyped(),
    WORKLOAD,
    JOB,
    ELASTICJOB.untyped(),
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
)
CHECKED: Final = "check"
"""The end of labels and annotations that an admission check gives to pods."""
COUNTS: Final = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")


class Record:
    """Every object of the stage as it was stored last, with what was counted along the way."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], Manifest]] = {kind.name: {} for kind in KINDS}
        self.made: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Pods of each job, by uid."""
        self.evicted: dict[tuple[str, str], set[tuple[str, str, str]]] = defaultdict(set)
        """Evictions of each job: Workload, time and reason."""

    @property
    def hears(self) -> Mapping[Kind[Any], Hear]:
        """Return what hears of the objects of each kind."""
        return {kind: partial(self._keep, kind.name) for kind in KINDS}

    def _keep(self, kind: str, found: Manifest, gone: bool) -> None:
        about = found["metadata"]
        place = (about.get("namespace", ""), about["name"])
        if gone:
            self.objects[kind].pop(place, None)
            return
        self.objects[kind][place] = found
        if kind == "Pod":
            self.made[place[0], job_of(found)].add(about["uid"])
        if kind == "Workload" and not is_slice(found):
            for each in found.get("status", {}).get("conditions", ()):
                if each["type"] == "Evicted" and each["status"] == "True":
                    when = (about["uid"], each["lastTransitionTime"], each["reason"])
                    self.evicted[place[0], owner(found)].add(when)

    def _of(self, kind: str, namespace: str) -> Iterable[Manifest]:
        return [found for (where, _), found in self.objects[kind].items() if where == namespace]

    def facts(self, side: Side) -> Facts:
        """Return all that is seen of one side now."""
        found: Facts = {}
        for kind, ours in ((JOB, False), *([(side.kind, True)] if side.ours else ())):
            for job in self._of(kind.name, side.namespace):
                name = job["metadata"]["name"]
                found |= {f"{name}.{key}": each for key, each in self._of_job(side, job, ours=ours).items()}
        for kind, where in ((CLUSTER_QUEUE, ""), (LOCAL_QUEUE, side.namespace)):
            for each in self._of(kind.name, where):
                name = each["metadata"]["name"]
                if kind is LOCAL_QUEUE or name.startswith(side.prefix):
                    word = "quota of" if kind is CLUSTER_QUEUE else "local queue"
                    found[f"{word} {side.short(name)}"] = _shared(side, each)
        return found

    def _of_job(self, side: Side, job: Manifest, *, ours: bool) -> Facts:
        name = job["metadata"]["name"]
        every = [each for each in self._of(WORKLOAD.name, side.namespace) if owner(each) == name]
        bases = (each for each in every if not is_slice(each))
        base = max(bases, key=lambda each: str(each["metadata"]["creationTimestamp"]), default=None)
        pods = [each for each in self._of("Pod", side.namespace) if job_of(each) == name]
        true = conditions(base or {})
        return {
            "quota": _standing(base),
            "flavors": _flavors(side, base),
            "priority": base["spec"].get("priority", 0) if base else None,
            "ready": "PodsReady" in true if base and "Admitted" in true else None,
            "pods": _phases(pods),
            "placed": sorted({_placed(side, each) for each in pods if _lives(each)}),
            "suspended": _suspended(job, ours=ours),
            "end": _end(job),
            "pods made": len(self.made[side.namespace, name]),
            "evictions": dict(Counter(sorted(reason for *_, reason in self.evicted[side.namespace, name]))),
            "workloads": len(every),
        }


def _standing(base: Manifest | None) -> str:
    """How far a Workload is, with Kueue's reasons."""
    if base is None:
        return "no Workload"
    true = conditions(base)
    words = [] if base["spec"].get("active", True) else ["not active"]
    if "Finished" in true:
        return f"finished {true['Finished']}"
    if "Evicted" in true:
        words.append(f"evicted {true['Evicted']}")
    if "Admitted" in true:
        return ", ".join(["admitted", *words])
    if "QuotaReserved" in true:
        return ", ".join(["reserved", *words])
    given = base.get("status", {}).get("conditions", ())
    why = next((each["reason"] for each in given if each["type"] == "QuotaReserved"), "")
    return ", ".join([f"waits {why}".strip(), *words])


def _flavors(side: Side, base: Manifest | None) -> list[str]:
    given = ((base or {}).get("status", {}).get("admission") or {}).get("podSetAssignments", ())
    pairs = {pair for each in given for pair in each.get("flavors", {}).items()}
    return sorted(f"{resource} of {side.short(flavor)}" for resource, flavor in pairs)


def _phases(pods: Iterable[Manifest]) -> dict[str, int]:
    def phase(pod: Manifest) -> str:
        if pod["spec"].get("schedulingGates"):
            return "gated"
        return "leaving" if "deletionTimestamp" in pod["metadata"] else str(pod["status"].get("phase"))

    return dict(sorted(Counter(map(phase, pods)).items()))


def _lives(pod: Manifest) -> bool:
    return pod["status"].get("phase") in ("Pending", "Running")


def _placed(side: Side, pod: Manifest) -> str:
    """Where a pod may run: the selectors, and the tolerations beside the server's own."""
    about, spec = pod["metadata"], pod["spec"]
    marks = {**about.get("labels", {}), **about.get("annotations", {})}
    named = (spec.get("nodeSelector") or {}) | {k: v for k, v in marks.items() if k.endswith(CHECKED)}
    keys = sorted(each.get("key", "") for each in spec.get("tolerations", ()))
    tolerated = (f"({key})" for key in keys if not key.startswith("node.kubernetes.io/"))
    return " ".join([*(f"{k}={v}" for k, v in sorted(named.items())), *tolerated]).replace(side.prefix, "~")


def _suspended(job: Manifest, *, ours: bool) -> bool:
    return bool(job["spec"].get("suspend")) or (ours and "Suspended" in conditions(job))


def _end(job: Manifest) -> str:
    return next((word for word in ("Complete", "Failed") if word in conditions(job)), "")


def _shared(side: Side, queue: Manifest) -> Facts:
    """What a queue says that it uses, and how many Workloads it counts."""
    status = queue.get("status", {})
    used = [
        (f"{each['name']} of {side.short(flavor['name'])}", each["total"], each.get("borrowed", "0"))
        for flavor in status.get("flavorsReservation", ())
        for each in flavor["resources"]
    ]
    found: Facts = {what: total for what, total, _ in used if total != "0"}
    found |= {f"{what}, borrowed": borrowed for what, _, borrowed in used if borrowed != "0"}
    counts = COUNTS[1:] if "namespace" in queue["metadata"] else COUNTS  # a LocalQueue counts who waits late
    found |= {each.removesuffix("Workloads"): status[each] for each in counts if status.get(each)}
    active = next((each["reason"] for each in status.get("conditions", ()) if each["type"] == "Active"), "")
    return found if active in ("Ready", "") else {**found, "active": active}

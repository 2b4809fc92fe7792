"""What both sides of a story show: their jobs, the Workloads, pods and quotas of these, by key."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD
from lab.clusters.plane.queues import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from lab.incumbents.kueue.side import JOB, Side, is_slice, job_of, owner
from lab.incumbents.oracle import Facts

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

    def __init__(self, client: Client) -> None:
        self._client = client
        self.objects: dict[str, dict[tuple[str, str], Manifest]] = {kind.name: {} for kind in KINDS}
        self.made: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Pods of each job, by uid."""
        self.evicted: dict[tuple[str, str], set[tuple[str, str, str]]] = defaultdict(set)
        """Evictions of each job: Workload, time and reason."""

    async def run(self) -> None:
        """Follow all kinds."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                cache = Cache[Any](kind)
                cache.subscribe(lambda change, cache=cache: self._keep(cache.kind.name, change))  # type: ignore[misc]
                group.create_task(Informer(self._client, cache).run())

    def _keep(self, kind: str, change: Change) -> None:
        item = change.new or change.old
        assert item is not None
        place = (item.key.namespace, item.key.name)
        if change.new is None:
            self.objects[kind].pop(place, None)
            return
        found = self.objects[kind][place] = msgspec.json.decode(item.raw, type=dict)
        about = found["metadata"]
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
        return {
            "quota": _standing(base),
            "flavors": _flavors(side, base),
            "priority": base["spec"].get("priority", 0) if base else None,
            "ready": _is(base, "PodsReady") if base and _is(base, "Admitted") else None,
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
    by = {each["type"]: each for each in base.get("status", {}).get("conditions", ())}
    true = {name: each["reason"] for name, each in by.items() if each["status"] == "True"}
    words = [] if base["spec"].get("active", True) else ["not active"]
    if "Finished" in true:
        return f"finished {true['Finished']}"
    if "Evicted" in true:
        words.append(f"evicted {true['Evicted']}")
    if "Admitted" in true:
        return ", ".join(["admitted", *words])
    if "QuotaReserved" in true:
        return ", ".join(["reserved", *words])
    return ", ".join([f"waits {by.get('QuotaReserved', {}).get('reason', '')}".strip(), *words])


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
    return bool(job["spec"].get("suspend")) or (ours and _is(job, "Suspended"))


def _is(job: Mapping[str, Any], type_: str) -> bool:
    given = job.get("status", {}).get("conditions", ())
    return any(each["type"] == type_ and each["status"] == "True" for each in given)


def _end(job: Manifest) -> str:
    return next((word for word in ("Complete", "Failed") if _is(job, word)), "")


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

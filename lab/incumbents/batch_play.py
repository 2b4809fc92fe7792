"""Plays a story with a batch/v1 Job (Indexed), or with an ElasticJob without a master, and observes it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from elasticjob.api.v1alpha1.common import LABEL_INDEX
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.kube.errors import KubeError, NotFound
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import MUTATING_WEBHOOKS, NAMESPACE, NODE, POD
from lab.clusters.namespaces import new_namespace
from lab.clusters.plane.pretended import machine
from lab.incumbents import side
from lab.incumbents.oracle import Facts
from lab.incumbents.side import QUOTA
from lab.incumbents.watched import INDEX_OF_JOB, OVER, Life, Pods
from lab.waiting import until

RANGE: Final = Kind("", "v1", "LimitRange", "limitranges", dict)
NAME: Final = "story"
IMAGE: Final = "docker.io/elasticjob/operator:incumbents"
BY: Final = "incumbents"
"""A label of machines: the namespace that they are for."""
MACHINES: Final = 4
"""Of kwok, for each side: each has room for one pod."""
PROGRAM: Final = """
import os, signal, sys, time
I, path = int(os.environ['INDEX']), '/shared/' + os.environ['INDEX']
with open(path, 'a+') as file:
    N = file.tell() if os.environ.get('COUNTED') else 0
    file.write('x')
"""
"""What programs begin with: I is the index, N how many pods of it have begun before."""
ROOM: Final = {"cpu": "8", "memory": "32Gi", "pods": "1"}
AT_ONCE: Final = 8.0
"""Seconds from the end of a pod to its successor, below which nobody calls it backed off."""
PATIENCE: Final = 60.0
SETTLE: Final = 14.0
"""Seconds after the end of a job: its pods have five to end by themselves, and then their grace."""
END: Final = 45.0


@dataclass
class Side(side.Side):
    """The story on one of the sides, in its own namespace."""

    story: Manifest
    pods: Pods
    machine: str
    """Of the real node; pods of other stories run on machines of kwok."""
    shared: Path
    webhook: Manifest
    facts: Facts = field(default_factory=dict)

    # What is made

    async def play(self) -> Facts:
        """Play, and return what was seen."""
        await self._furnish()
        try:
            acts = self.story.get("acts", ["run"])
            if "submit" not in acts:
                acts = ["submit", *acts]
            for act in [*acts, "end"]:
                word, *more = str(act).split()
                await getattr(self, word)(*more)
            await asyncio.sleep(self.story.get("after", SETTLE))
            await self._observe()
        finally:
            await self._clear()
        return self.facts

    async def _furnish(self) -> None:
        await new_namespace(self.client, self.namespace)
        if self.story.get("real"):
            self.shared.mkdir(parents=True)
            self.shared.chmod(0o777)
        else:
            for name in self._machines:
                await self.create(NODE, machine(name, ROOM, {BY: self.namespace}))

    @property
    def _machines(self) -> list[str]:
        return [f"{self.namespace}-{number}" for number in range(MACHINES)]

    async def _clear(self) -> None:
        for name in self.finalized:
            with suppress(KubeError):
                await self._finalizers(name, [])
        await self.delete(MUTATING_WEBHOOKS, self.namespace)
        with suppress(KubeError):
            await self.delete(self.kind, NAME)
        await self.delete(NAMESPACE, self.namespace)
        if not self.story.get("real"):
            for name in self._machines:
                await self.delete(NODE, name)

    def manifest(self) -> Manifest:
        """Return the Job, or the ElasticJob with the same fields."""
        job = {
            "completionMode": "Indexed",
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": self._pod()},
            **self.story.get("job", {}),
        }
        return {"metadata": {"name": NAME}, "spec": self._translated(job) if self.ours else job}

    def _pod(self) -> Manifest:
        beside = [self._container(each) for each in self.story.get("beside", ())]
        first = [self._container(each) for each in self.story.get("init", ())]
        main = {
            "name": "main",
            "run": self.story.get("run", "time.sleep(1000)"),
            **self.story.get("main", {}),
        }
        place = {"kubernetes.io/hostname": self.machine} if self.story.get("real") else {BY: self.namespace}
        more = {"initContainers": first} if first else {}
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [self._container(main, counted=True), *beside],
            **more,
            "nodeSelector": place,
            "volumes": [
                {"name": "shared", "hostPath": {"path": str(self.shared)}},
                {"name": "own", "emptyDir": {"sizeLimit": "1Mi"}},
            ],
            **self.story.get("pod", {}),
        }

    def _container(self, given: Manifest, *, counted: bool = False) -> Manifest:
        label = LABEL_INDEX if self.ours else INDEX_OF_JOB
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
        variables: list[Manifest] = [{"name": "INDEX", "valueFrom": source}]
        if counted:
            variables.append({"name": "COUNTED", "value": "yes"})
        mounts = [{"name": "shared", "mountPath": "/shared"}, {"name": "own", "mountPath": "/own"}]
        rest = {key: value for key, value in given.items() if key != "run"}
        program = (PROGRAM if counted else PROGRAM.partition("with")[0]) + str(given.get("run", ""))
        return {
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-ISc", program],
            "env": variables,
            "volumeMounts": mounts,
            "resources": {"requests": {"cpu": "10m"}},
            **rest,
        }

    def _translated(self, job: Manifest) -> Manifest:
        """Return the ElasticJobSpec of a JobSpec: what docs/from-job.md says of each field."""
        size = job["parallelism"]
        per_index = job.get("backoffLimitPerIndex")
        lost = job.get("maxFailedIndexes") or 0
        worker = {
            "replicas": size,
            "minReplicas": size - lost,
            "maxReplicas": size,
            "restartCount": 100 if per_index is None else per_index,
            "template": job["template"],
        }
        same = ("activeDeadlineSeconds", "ttlSecondsAfterFinished")
        policy = {name: job[name] for name in same if name in job}
        if per_index is None:
            policy["backoffLimit"] = job.get("backoffLimit", 6)
        if "successPolicy" in job:
            policy["successPolicy"] = "ChiefOrWorker0"
        rules = job.get("podFailurePolicy", {}).get("rules", ())
        by_code = [
            {"action": rule["action"], "onExitCodes": {key: codes[key] for key in ("operator", "values")}}
            for rule in rules
            if (codes := rule.get("onExitCodes")) and rule["action"] in ("FailJob", "Ignore", "Count")
        ]
        if by_code:
            policy["failurePolicy"] = {"rules": by_code}
        whole = {name: job[name] for name in ("suspend", "managedBy") if name in job}
        return {
            "distributionStrategy": self.story.get("strategy", "Local"),
            **whole,
            "runPolicy": policy,
            "replicaSpecs": {"worker": worker},
            **self.story.get("ours", {}),
        }

    # What is done

    async def submit(self) -> None:
        await self.create(self.kind, self.manifest())

    async def run(self, seconds: float = PATIENCE) -> None:
        """Wait until each index has a pod that runs."""
        indexes = [*map(str, range(self._size()))]
        await self._await(lambda: all(map(self._running, indexes)), "all run", seconds)

    async def again(self, index: str, many: str = "2", seconds: float = PATIENCE) -> None:
        """Wait until an index has its second pod, or its `many`th, and that runs."""

        def runs() -> bool:
            return len(self.lives(index)) >= int(many) and self._running(index)

        await self._await(runs, f"index {index} runs again", seconds)

    async def over(self, index: str) -> None:
        """Wait until the newest pod of an index is over."""
        await self._await(
            lambda: any(life.ended is not None for life in self.lives(index)[-1:]), f"index {index} is over"
        )

    async def seconds(self, count: str) -> None:
        await asyncio.sleep(float(count))

    async def succeed(self, index: str) -> None:
        await self._end_pod(index, "Succeeded", 0)

    async def fail(self, index: str, code: str = "1") -> None:
        await self._end_pod(index, "Failed", int(code))

    async def refuse(self, index: str, reason: str) -> None:
        """The kubelet does not take the pod, or takes it away: no container of it ends."""
        await self._end_pod(index, "Failed", None, reason)

    async def drop(self, index: str, grace: str = "") -> None:
        if life := self._newest(index):
            await self.delete(POD, life.name, int(grace) if grace else None)

    async def tidy(self, index: str) -> None:
        """Delete the pods of an index that are over."""
        for life in self.lives(index):
            if life.phase in OVER:
                await self.delete(POD, life.name)

    async def evict(self, index: str) -> None:
        if life := self._newest(index):
            about = {"name": life.name, "namespace": self.namespace}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
            await self.client.post(POD, life.name, "eviction", body, self.namespace)

    async def lose(self, index: str) -> None:
        """The machine of a pod goes, and does not come back."""
        if life := self._newest(index):
            await self.delete(NODE, life.pod["spec"]["nodeName"])

    async def gone(self, index: str) -> None:
        """Wait until the machine's pod is collected."""
        await self._await(
            lambda: any(life.gone or life.leaves for life in self.lives(index)),
            f"a pod of index {index} goes",
            120,
        )

    async def suspend(self) -> None:
        await self._specify({"suspend": True})

    async def resume(self) -> None:
        await self._specify({"suspend": False})

    async def remove(self) -> None:
        """Delete the job."""
        await self.delete(self.kind, NAME)

    async def scale(self, size: str) -> None:
        many = int(size)
        worker = {"replicas": many, "minReplicas": many, "maxReplicas": many}
        theirs, ours = {"parallelism": many, "completions": many}, {"replicaSpecs": {"worker": worker}}
        await self._specify(ours if self.ours else theirs)
        self._resized = many

    _resized: int | None = None

    finalized: set[str] = field(default_factory=set)

    async def hold(self, index: str) -> None:
        """Somebody's finalizer is put on the pod of an index."""
        if life := self._newest(index):
            self.finalized.add(life.name)
            await self._finalizers(life.name, ["example.com/others"])

    async def release(self) -> None:
        for name in self.finalized:
            with suppress(NotFound):
                await self._finalizers(name, [])

    async def quota(self, pods: str) -> None:
        made = {"metadata": {"name": "quota", "namespace": self.namespace}, "spec": {"hard": {"pods": pods}}}
        await self.client.apply(QUOTA, made, manager="story")

        async def counted() -> bool:
            found: Manifest = await self.client.get(QUOTA, "quota", self.namespace)
            return bool(found.get("status", {}).get("hard", {}).get("pods") == pods)

        await until(counted, "the quota is counted", PATIENCE)

    async def limits(self, least: str) -> None:
        """A LimitRange with a least request; 0 takes it away."""
        if least == "0":
            await self.delete(RANGE, "range")
            return
        limit = {"type": "Container", "min": {"cpu": least}, "defaultRequest": {"cpu": least}}
        await self.create(RANGE, {"metadata": {"name": "range"}, "spec": {"limits": [limit]}})
        await asyncio.sleep(2)  # the API server's own copy

    async def admission(self, does: str) -> None:
        """A webhook of others for pods `mutates`, is `away` (each pod is refused), or `leaves`."""
        if does == "leaves":
            await self.delete(MUTATING_WEBHOOKS, self.namespace)
            await asyncio.sleep(2)
            return
        where = self.webhook if does == "mutates" else {**self.webhook, "url": "https://127.0.0.1:1/"}
        pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        hook = {
            "name": "pods.example.com",
            "clientConfig": where,
            "rules": [pods],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "failurePolicy": "Fail",
        }
        await self.create(MUTATING_WEBHOOKS, {"metadata": {"name": self.namespace}, "webhooks": [hook]})
        await asyncio.sleep(2)

    async def machines(self, able: str) -> None:
        """The machines of the story take pods, or not: `on`, `off`."""
        for name in self._machines:
            await self.patch(NODE, name, {"spec": {"unschedulable": able == "off"}})

    async def look(self, seconds: str = "3") -> None:
        """Note how it is now, after all had time to settle."""
        await asyncio.sleep(float(seconds))
        number = 1 + sum(key.startswith("look") for key in self.facts)
        self.facts[f"look {number}"] = await self._now()

    async def end(self, seconds: str = "") -> None:
        """Wait until the job is over, or time is."""

        async def is_over() -> bool:
            return str((await self._status())["end"]) != "none"

        if not self.story.get("endless"):
            await self._await(is_over, "", seconds or self.story.get("within", END))

    # How it is done

    async def _await(
        self, ask: Callable[[], object | Awaitable[object]], what: str, seconds: float | str = PATIENCE
    ) -> None:
        try:
            await until(ask, what, float(seconds))
        except AssertionError:
            if what:
                self.facts[f"in vain: {what}"] = True

    def _size(self) -> int:
        found: int = self.story.get("job", {}).get("parallelism", 2)
        return found if self._resized is None else self._resized

    def lives(self, index: str) -> list[Life]:
        """Return the pods that an index has had."""
        return [each for each in self.pods.of[self.namespace].values() if each.index == index]

    def _newest(self, index: str) -> Life | None:
        lives = [each for each in self.lives(index) if each.gone is None]
        return lives[-1] if lives else None

    def _running(self, index: str) -> bool:
        """Whether an index has a pod that runs, or on the real node, where that may be short, has run."""
        lives = self.lives(index)
        if not lives or lives[-1].leaves is not None or lives[-1].gone is not None:
            return False
        return lives[-1].phase in (("Running", *OVER) if self.story.get("real") else ("Running",))

    async def _end_pod(self, index: str, phase: str, code: int | None, reason: str = "") -> None:
        """Write what the kubelet would."""
        life = self._newest(index)
        if life is None or life.ended is not None:
            self.facts[f"no pod of index {index} to end"] = True
            return
        now = timestamp(datetime.now(UTC))
        statuses = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}},
            }
            for each in life.pod["spec"]["containers"]
            if code is not None
        ]
        status: dict[str, Any] = {"phase": phase, "containerStatuses": statuses}
        if reason:
            status |= {"reason": reason, "message": f"Pod was rejected: {reason}"}
        await self.patch(POD, life.name, {"status": status}, "status")

    async def _specify(self, spec: Manifest) -> None:
        await self.patch(self.kind, NAME, {"spec": spec})

    async def _finalizers(self, pod: str, names: list[str]) -> None:
        found = await self.client.get(POD.untyped(), pod, self.namespace)
        kept = [each for each in found["metadata"].get("finalizers", ()) if each != "example.com/others"]
        await self.patch(POD, pod, {"metadata": {"finalizers": [*kept, *names]}})

    # What is seen

    async def _status(self) -> Manifest:
        """Return end, reason, completed indexes and counted failures."""
        found = await self.client.find(self.kind, NAME, self.namespace)
        if found is None:
            return {"end": "deleted", "reason": "", "succeeded": 0, "counted": 0}
        status = found.get("status", {})
        true = {each["type"]: each for each in status.get("conditions", ()) if each["status"] == "True"}
        last = next((true[each] for each in ("Complete", "Failed") if each in true), None)
        if self.ours:
            succeeded = status.get("replicaStatuses", {}).get("worker", {}).get("succeeded", 0)
            counted = await self._counted()
        else:
            succeeded, counted = _count(status.get("completedIndexes", "")), status.get("failed", 0)
        reason = last["reason"] if last and last["type"] == "Failed" else ""
        return {
            "end": last["type"] if last else "none",
            "reason": SAME.get(reason, reason),
            "succeeded": succeeded,
            "counted": counted,
        }

    async def _counted(self) -> int:
        """Return how many failures of an ElasticJob's nodes count against their budget."""
        found = await self.client.find(JOBRESOURCE.untyped(), NAME, self.namespace) or {}
        restarts: Manifest = found.get("status", {}).get("restarts", {})
        return sum(count for of_role in restarts.values() for count in of_role.values())

    async def _now(self) -> Manifest:
        lives = [life for life in self.pods.of[self.namespace].values() if life.index]
        return {
            **await self._status(),
            "pods": len(lives),
            "alive": sum(life.lives for life in lives),
            "leaving": sum(bool(life.leaves and not life.ended) for life in lives),
        }

    async def _observe(self) -> None:
        self.facts |= await self._status()
        lives = [life for life in self.pods.of[self.namespace].values() if life.index]
        left = Counter(life.phase for life in lives if life.gone is None)
        self.facts["pods that stay"] = dict(sorted(left.items()))
        for index in sorted({life.index for life in lives}):
            mine = self.lives(index)
            self.facts[f"pods of index {index}"] = len(mine)
            self.facts[f"successors of index {index}"] = [_when(*pair) for pair in pairwise(mine)]
            grace = [life.pod["metadata"].get("deletionGracePeriodSeconds") for life in mine if life.leaves]
            self.facts[f"grace of index {index}"] = grace


SPENT: Final = "one is spent"
SAME: Final = {
    "FailedIndexes": SPENT,
    "MaxFailedIndexesExceeded": SPENT,
    "RestartsSpent": SPENT,
    "PodFailed": SPENT,
    "OutOfMemory": SPENT,
}
"""Reasons that say the same."""


def _count(indexes: str) -> int:
    """Return how many indexes `0,2-4` names."""
    parts = (part.split("-") for part in indexes.split(",") if part)
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def _when(before: Life, after: Life) -> str:
    if before.ended is None or after.made < before.ended - 0.2:
        return "before the end"
    return "at once" if after.made - before.ended < AT_ONCE else "backed off"

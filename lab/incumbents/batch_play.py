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
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError, NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import MUTATING_WEBHOOKS, NAMESPACE, NODE, POD, SERVICE_ACCOUNT
from lab.incumbents.oracle import INCUMBENT, OURS, Facts
from lab.incumbents.watched import INDEX_OF_JOB, OVER, Life, Pods
from lab.waiting import until

JOB: Final = Kind("batch", "v1", "Job", "jobs", dict)
QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas", dict)
RANGE: Final = Kind("", "v1", "LimitRange", "limitranges", dict)
OBJECT: Final = {INCUMBENT: JOB, OURS: ELASTICJOB.untyped()}
INDEX: Final = {INCUMBENT: INDEX_OF_JOB, OURS: LABEL_INDEX}
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
AT_ONCE: Final = 8.0
"""Seconds from the end of a pod to its successor, below which nobody calls it backed off."""
PATIENCE: Final = 60.0
SETTLE: Final = 14.0
"""Seconds after the end of a job: its pods have five to end by themselves, and then their grace."""
END: Final = 45.0


@dataclass
class Side:
    """The story on one of the sides, in its own namespace."""

    story: Manifest
    who: str
    client: Client
    pods: Pods
    namespace: str
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
            if not any(act.startswith("create") for act in acts):
                acts = ["create", *acts]
            for act in [*acts, "end"]:
                word, *more = str(act).split()
                await ACTS[word](self, *more)
            await asyncio.sleep(self.story.get("after", SETTLE))
            await self._observe()
        finally:
            await self._clear()
        return self.facts

    async def _furnish(self) -> None:
        about = {"name": self.namespace}
        await self.client.create(NAMESPACE.untyped(), {"metadata": about})
        if self.story.get("real"):
            self.shared.mkdir(parents=True)
            self.shared.chmod(0o777)
        else:
            for number in range(MACHINES):
                await self.client.create(NODE.untyped(), self._machine(number))

        async def furnished() -> bool:
            return await self.client.find(SERVICE_ACCOUNT, "default", self.namespace) is not None

        await until(furnished, f"{self.namespace} has a ServiceAccount")

    def _machine(self, number: int) -> Manifest:
        about = {
            "name": f"{self.namespace}-{number}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {BY: self.namespace},
        }
        room = {"cpu": "8", "memory": "32Gi", "pods": "1"}
        return {"metadata": about, "status": {"capacity": room, "allocatable": room}}

    async def _clear(self) -> None:
        for name in self.finalized:
            with suppress(KubeError):
                await self._finalizers(name, [])
        await self.client.delete(MUTATING_WEBHOOKS, self.namespace)
        with suppress(KubeError):
            await self.client.delete(OBJECT[self.who], NAME, self.namespace)
        await self.client.delete(NAMESPACE, self.namespace)
        if not self.story.get("real"):
            for number in range(MACHINES):
                await self.client.delete(NODE, f"{self.namespace}-{number}")

    def manifest(self) -> Manifest:
        """Return the Job, or the ElasticJob with the same fields."""
        job = {
            "completionMode": "Indexed",
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": self._pod()},
            **self.story.get("job", {}),
        }
        about = {"name": NAME, "namespace": self.namespace}
        return {"metadata": about, "spec": job if self.who == INCUMBENT else self._translated(job)}

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
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX[self.who]}']"}}
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
            {
                "action": rule["action"],
                "onExitCodes": {key: rule["onExitCodes"][key] for key in ("operator", "values")},
            }
            for rule in rules
            if "onExitCodes" in rule and rule["action"] in ("FailJob", "Ignore", "Count")
        ]
        if by_code:
            policy["failurePolicy"] = {"rules": by_code}
        whole = {name: job[name] for name in ("suspend", "managedBy") if name in job}
        strategy = self.story.get("strategy", "Local")
        return {
            "distributionStrategy": strategy,
            **whole,
            "runPolicy": policy,
            "replicaSpecs": {"worker": worker},
            **self.story.get("ours", {}),
        }

    # What is done

    async def create(self) -> None:
        await self.client.create(OBJECT[self.who], self.manifest())

    async def run(self, seconds: str = str(PATIENCE)) -> None:
        """Wait until each index has a pod that runs."""

        async def runs() -> bool:
            return all(self._running(str(index)) for index in range(self._size()))

        await self._await(runs, "all run", float(seconds))

    async def again(self, index: str, many: str = "2", seconds: str = str(PATIENCE)) -> None:
        """Wait until an index has its second pod, or its `many`th, and that runs."""

        async def runs() -> bool:
            return len(self.pods.at(self.namespace, index)) >= int(many) and self._running(index)

        await self._await(runs, f"index {index} runs again", float(seconds))

    async def over(self, index: str) -> None:
        """Wait until the newest pod of an index is over."""

        async def ended() -> bool:
            lives = self.pods.at(self.namespace, index)
            return bool(lives) and lives[-1].ended is not None

        await self._await(ended, f"index {index} is over", PATIENCE)

    async def seconds(self, count: str) -> None:
        await asyncio.sleep(float(count))

    async def succeed(self, index: str) -> None:
        await self._end_pod(index, "Succeeded", 0)

    async def fail(self, index: str, code: str = "1") -> None:
        await self._end_pod(index, "Failed", int(code))

    async def refuse(self, index: str, reason: str) -> None:
        """The kubelet does not take the pod, or takes it away: no container of it ends."""
        await self._end_pod(index, "Failed", None, reason)

    async def delete(self, index: str, grace: str = "") -> None:
        if life := self._newest(index):
            seconds = int(grace) if grace else None
            await self.client.delete(POD, life.name, self.namespace, grace=seconds)

    async def tidy(self, index: str) -> None:
        """Delete the pods of an index that are over."""
        for life in self.pods.at(self.namespace, index):
            if life.phase in OVER:
                await self.client.delete(POD, life.name, self.namespace)

    async def evict(self, index: str) -> None:
        if life := self._newest(index):
            about = {"name": life.name, "namespace": self.namespace}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
            await self.client.post(POD, life.name, "eviction", body, self.namespace)

    async def lose(self, index: str) -> None:
        """The machine of a pod goes, and does not come back."""
        if life := self._newest(index):
            await self.client.delete(NODE, life.pod["spec"]["nodeName"])

    async def gone(self, index: str) -> None:
        """Wait until the machine's pod is collected."""

        async def collected() -> bool:
            lives = self.pods.at(self.namespace, index)
            return any(life.gone or life.leaves for life in lives)

        await self._await(collected, f"a pod of index {index} goes", 120)

    async def suspend(self) -> None:
        await self._patch({"spec": {"suspend": True}})

    async def resume(self) -> None:
        await self._patch({"spec": {"suspend": False}})

    async def remove(self) -> None:
        """Delete the job."""
        await self.client.delete(OBJECT[self.who], NAME, self.namespace)

    async def scale(self, size: str) -> None:
        many = int(size)
        worker = {"replicas": many, "minReplicas": many, "maxReplicas": many}
        theirs, ours = {"parallelism": many, "completions": many}, {"replicaSpecs": {"worker": worker}}
        await self._patch({"spec": theirs if self.who == INCUMBENT else ours})
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
            await self.client.delete(RANGE, "range", self.namespace)
            return
        limit = {"type": "Container", "min": {"cpu": least}, "defaultRequest": {"cpu": least}}
        about = {"name": "range", "namespace": self.namespace}
        await self.client.create(RANGE, {"metadata": about, "spec": {"limits": [limit]}})
        await asyncio.sleep(2)  # the API server's own copy

    async def admission(self, does: str) -> None:
        """A webhook of others for pods `mutates`, is `away` (each pod is refused), or `leaves`."""
        if does == "leaves":
            await self.client.delete(MUTATING_WEBHOOKS, self.namespace)
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
        made = {"metadata": {"name": self.namespace}, "webhooks": [hook]}
        await self.client.create(MUTATING_WEBHOOKS.untyped(), made)
        await asyncio.sleep(2)

    async def machines(self, able: str) -> None:
        """The machines of the story take pods, or not: `on`, `off`."""
        for number in range(MACHINES):
            patch = {"spec": {"unschedulable": able == "off"}}
            await self.client.merge_patch(NODE.untyped(), f"{self.namespace}-{number}", patch)

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
            await self._await(is_over, "", float(seconds or self.story.get("within", END)))

    # How it is done

    async def _await(self, ask: Callable[[], Awaitable[bool]], what: str, seconds: float) -> None:
        try:
            await until(ask, what, seconds)
        except AssertionError:
            if what:
                self.facts[f"in vain: {what}"] = True

    def _size(self) -> int:
        found: int = self.story.get("job", {}).get("parallelism", 2)
        return found if self._resized is None else self._resized

    def _newest(self, index: str) -> Life | None:
        lives = [each for each in self.pods.at(self.namespace, index) if each.gone is None]
        return lives[-1] if lives else None

    def _running(self, index: str) -> bool:
        """Whether an index has a pod that runs, or on the real node, where that may be short, has run."""
        lives = self.pods.at(self.namespace, index)
        if not lives or lives[-1].leaves is not None or lives[-1].gone is not None:
            return False
        return lives[-1].phase in (("Running", *OVER) if self.story.get("real") else ("Running",))

    async def _end_pod(self, index: str, phase: str, code: int | None, reason: str = "") -> None:
        """Write what the kubelet would."""
        life = self._newest(index)
        if life is None or life.ended is not None:
            self.facts[f"no pod of index {index} to end"] = True
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
        await self.client.merge_patch(
            POD.untyped(), life.name, {"status": status}, self.namespace, subresource="status"
        )

    async def _patch(self, patch: Manifest) -> None:
        await self.client.merge_patch(OBJECT[self.who], NAME, patch, self.namespace)

    async def _finalizers(self, pod: str, names: list[str]) -> None:
        found = await self.client.get(POD.untyped(), pod, self.namespace)
        kept = [each for each in found["metadata"].get("finalizers", ()) if each != "example.com/others"]
        patch = {"metadata": {"finalizers": [*kept, *names]}}
        await self.client.merge_patch(POD.untyped(), pod, patch, self.namespace)

    # What is seen

    async def _status(self) -> Manifest:
        """Return end, reason, completed indexes and counted failures."""
        found = await self.client.find(OBJECT[self.who], NAME, self.namespace)
        if found is None:
            return {"end": "deleted", "reason": "", "succeeded": 0, "counted": 0}
        status = found.get("status", {})
        true = {each["type"]: each for each in status.get("conditions", ()) if each["status"] == "True"}
        last = next((true[each] for each in ("Complete", "Failed") if each in true), None)
        if self.who == INCUMBENT:
            succeeded, counted = _count(status.get("completedIndexes", "")), status.get("failed", 0)
        else:
            worker = status.get("replicaStatuses", {}).get("worker", {})
            succeeded = worker.get("succeeded", 0)
            counted = await self._counted()
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
            mine = self.pods.at(self.namespace, index)
            self.facts[f"pods of index {index}"] = len(mine)
            self.facts[f"successors of index {index}"] = [_when(*pair) for pair in pairwise(mine)]
            grace = [life.pod["metadata"].get("deletionGracePeriodSeconds") for life in mine if life.leaves]
            self.facts[f"grace of index {index}"] = grace


ACTS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    act.__name__: act
    for act in (
        Side.create, Side.run, Side.again, Side.over, Side.seconds, Side.succeed, Side.fail, Side.refuse,
        Side.delete, Side.tidy, Side.evict, Side.lose, Side.gone, Side.suspend, Side.resume, Side.remove,
        Side.scale, Side.hold, Side.release, Side.quota, Side.limits, Side.admission, Side.machines,
        Side.look, Side.end,
    )
}  # fmt: skip
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

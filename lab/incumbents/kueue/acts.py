"""What may happen in a story: a word, and what it is done to. Words of stories.yaml.

An act is `job a 2 least=1 class=high`, or such words with a mapping: `{job a 2: {pod: {…}}}`. In names `~`
stands for the prefix of a side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from elasticjob.api.v1alpha1.kueue import PRIORITY_CLASS, QUEUE_NAME
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CRD, NAMESPACE, NODE, POD
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.queues import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, RESOURCE_FLAVOR, TOPOLOGY, WORKLOAD
from lab.incumbents.kueue.side import Side
from lab.incumbents.side import JOB

CHECK: Final = Kind(queues.GROUP, queues.VERSION, "AdmissionCheck", "admissionchecks", dict, namespaced=False)
KINDS: Final[Mapping[str, Kind[Any]]] = {
    "queue": CLUSTER_QUEUE,
    "local": LOCAL_QUEUE,
    "flavor": RESOURCE_FLAVOR,
    "cohort": COHORT,
    "topology": TOPOLOGY,
    "class": queues.PRIORITY_CLASS,
    "machine": NODE,
    "check": CHECK,
    "namespace": NAMESPACE,
}
ANY: Final = "any"
"""The flavor that all stories share: any machine."""
SHORT: Final = {"gpu": "example.com/gpu"}
GROWING: Final = {f"{queues.GROUP}/elastic-job": "true"}

Line = str | Mapping[str, Any]
Words = list[str]
Act = Callable[[Side, Words, Mapping[str, Any]], Awaitable[None]]


async def job(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`job a 2`: a job of the side's kind comes; `least=1` makes ours elastic, a Job admissible in part."""
    await side.create(side.kind, asked(words, more, ours=side.ours))


async def other(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`other x 2`: a Job of Kubernetes comes on both sides; `other x0..x8 5`: nine of them."""
    first, _, last = words[0].partition("..")
    for number in range(int(first[1:] or 0), int(last[1:] or 0) + 1) if last else [None]:
        name = first if number is None else f"{first[0]}{number}"
        await side.create(JOB, asked([name, *words[1:]], more, ours=False))


def asked(words: Words, more: Mapping[str, Any], *, ours: bool) -> Manifest:
    """Return a job: its name, how many pods, and what is unusual about it."""
    options = dict(word.split("=") for word in words[2:])
    pods, least = int(words[1]), options.get("least")
    named = {QUEUE_NAME: options.get("in", "q"), PRIORITY_CLASS: options.get("class", "").join(("~", ""))}
    labels = {k: v for k, v in named.items() if v not in ("", "~")} | dict(more.get("labels", {}))
    notes, amounts = dict(more.get("annotations", {})), {"cpu": options.get("cpu", "1")}
    amounts |= {SHORT.get(key, key): options[key] for key in ("gpu", "memory") if key in options}
    limits = {name: amount for name, amount in amounts.items() if "/" in name}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": limits}}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1, **more.get("pod", {})}
    template = {"metadata": {"annotations": more.get("notes", {})}, "spec": pod}
    if ours:
        worker = _sizes(pods, int(least or pods)) | {"template": template}
        manual = {"distributionStrategy": "Local", "optimizeMode": "manual"}
        spec: Manifest = {**manual, "replicaSpecs": {"worker": worker}}
    else:
        notes |= {f"{queues.GROUP}/job-min-parallelism": least} if least else {}
        notes |= GROWING if "grows" in more else {}
        pod["restartPolicy"] = "Never"
        spec = {"parallelism": pods, "completions": more.get("grows", pods), "template": template}
    spec |= {"suspend": True} if "suspend" in more else {}
    return {"metadata": {"name": words[0], "labels": labels, "annotations": notes}, "spec": spec}


def _sizes(pods: int, least: int) -> Manifest:
    return {"replicas": pods, "minReplicas": least, "maxReplicas": pods}


async def end(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """All jobs are deleted."""
    for kind in {side.kind, JOB}:
        await gone(
            side, [each["metadata"]["name"] for each in await side.client.list(kind, side.namespace)], more
        )


async def gone(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`gone a b`: jobs are deleted."""
    for name in words:
        for kind in {side.kind, JOB}:
            await side.delete(kind, name)


async def size(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`size a 3`: so many pods, no more and no less."""
    pods = int(words[1])
    ours = {"replicaSpecs": {"worker": _sizes(pods, pods)}}
    await side.patch(side.kind, words[0], {"spec": ours if side.ours else {"parallelism": pods}})


async def label(side: Side, words: Words, more: Mapping[str, Any], where: str = "labels") -> None:
    """`label a queue-name=r`: a label of Kueue's changes, or with nothing after `=` goes."""
    key, _, value = words[1].partition("=")
    change = {where: {f"{queues.GROUP}/{key}": value or None}}
    await side.patch(side.kind, words[0], {"metadata": change})


async def annotate(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`annotate a admission-gated-by=`: the same for an annotation."""
    await label(side, words, more, "annotations")


async def suspend(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`suspend a`, `suspend a no`: as its user does."""
    await side.patch(side.kind, words[0], {"spec": {"suspend": words[1:] != ["no"]}})


async def done(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`done a 2`: so many of the job's pods succeed."""
    running = [each for each in await side.pods(words[0]) if each["status"].get("phase") == "Running"]
    for each in running[: int(words[1])]:
        await side.patch(POD, each["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "status")


async def lost(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`lost a`: one of the job's pods is deleted."""
    first = (await side.pods(words[0]))[0]["metadata"]["name"]
    await side.client.delete(POD, first, side.namespace, grace=0)


async def workload(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`{workload a: {active: false}}`: a job's Workload changes; `workload a gone`: it is deleted."""
    name = (await side.workload(words[0]))["metadata"]["name"]
    await (side.delete(WORKLOAD, name) if words[1:] else side.patch(WORKLOAD, name, {"spec": more}))


async def checked(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`checked a Ready`: the admission check of a job gets this state, with what it changes in the pods."""
    found = await side.workload(words[0])
    updates = [{"name": each["name"], **more} for each in found["spec"]["podSets"]] if more else []
    state = {"state": words[1], "message": words[1].lower(), "podSetUpdates": updates}
    checks = [{**each, **state} for each in found["status"]["admissionChecks"]]
    await side.patch(WORKLOAD, found["metadata"]["name"], {"status": {"admissionChecks": checks}}, "status")


async def make(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`{make flavor spot: {…}}`: an object comes, with this spec."""
    kind, name = words[:2]
    for of, manifest in made(kind, name, more):
        await side.create(of, manifest)
    if kind == "check":
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "by the story"}
        found = {**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await side.patch(CHECK, f"~{name}", {"status": {"conditions": [found]}}, "status")


def made(kind: str, name: str, more: Mapping[str, Any]) -> Iterator[tuple[Kind[Any], Manifest]]:
    """Yield what is created for an object of a story."""
    about, spec = {"name": name if kind == "local" else f"~{name}"}, dict(more)
    match kind:
        case "queues":
            yield CLUSTER_QUEUE, {"metadata": about, "spec": _queue(spec)}
            yield from made("local", name, {"clusterQueue": f"~{name}"})
        case "queue":
            yield CLUSTER_QUEUE, {"metadata": about, "spec": _queue(spec)}
        case "cohort":
            yield COHORT, {"metadata": about, "spec": _grouped(spec)}
        case "class":
            yield queues.PRIORITY_CLASS, {"metadata": about, **spec}
        case "topology":
            yield TOPOLOGY, queues.topology(f"~{name}", *spec["levels"])
        case "machine":
            yield NODE, machine(f"~{name}", **spec)
        case "check":
            yield CHECK, {"metadata": about, "spec": {"controllerName": "example.com/story"}}
        case _:
            yield KINDS[kind], {"metadata": about, "spec": spec}


def _queue(spec: Manifest) -> Manifest:
    return {"namespaceSelector": {}, "preemption": {}, **_grouped({"cpu": 4, **spec})}


def _grouped(spec: Manifest) -> Manifest:
    """Spell out `cpu`, `lend` and `borrow` of the shared flavor, or `flavors`: a list of groups."""
    cpu, groups = spec.pop("cpu", None), spec.pop("flavors", None)
    limits = {f"{name}ingLimit": str(spec.pop(name)) for name in ("lend", "borrow") if name in spec}
    if groups is None and cpu is None:
        return spec
    if groups is None:
        amount = {"name": "cpu", "nominalQuota": str(cpu), **limits}
        return {"resourceGroups": [_group({ANY: [amount]})], **spec}
    return {
        "resourceGroups": [_group({f"~{k}": _amounts(v) for k, v in each.items()}) for each in groups],
        **spec,
    }


def _amounts(given: Mapping[str, object] | int) -> list[Manifest]:
    amounts = given if isinstance(given, Mapping) else {"cpu": given}
    return [{"name": SHORT.get(name, name), "nominalQuota": str(each)} for name, each in amounts.items()]


def _group(flavors: Mapping[str, list[Manifest]]) -> Manifest:
    covered = [each["name"] for each in next(iter(flavors.values()))]
    listed = [{"name": name, "resources": amounts} for name, amounts in flavors.items()]
    return {"coveredResources": covered, "flavors": listed}


def machine(name: str, labels: Mapping[str, str] | None = None, taint: str = "", cpu: int = 16) -> Manifest:
    """Return a machine with 8 GPUs that has its name as a label."""
    amounts = {"cpu": str(cpu), "memory": "256Gi", "pods": "110", SHORT["gpu"]: "8"}
    return pretended.machine(name, amounts, {**(labels or {}), "kubernetes.io/hostname": name}, taint)


async def edit(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`{edit queue q: {stopPolicy: Hold}}`: the spec of an object changes."""
    kind, name = words
    name = name if kind == "local" else f"~{name}"
    if kind == "namespace":
        await side.patch(NAMESPACE, side.namespace, {"metadata": {"labels": more}})
    else:
        await side.patch(KINDS[kind], name, dict(more) if kind == "class" else {"spec": _grouped(dict(more))})


async def drop(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`drop queue q`: an object is deleted."""
    await side.delete(KINDS[words[0]], words[1] if words[0] == "local" else f"~{words[1]}")


async def wait(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """`wait 30`: seconds."""
    await asyncio.sleep(float(words[0]))


async def uninstall(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """Kueue goes with all of its kinds, as its chart does; of both sides at once."""
    if side.ours:
        return
    side.kueue.kill()
    side.kueue.unregister()
    leaving = [each["metadata"]["name"] for each in side.kueue.definitions]
    for name in leaving:
        await side.client.delete(CRD, name)
    while any(each.metadata.name in leaving for each in await side.client.list(CRD)):
        for kind in (WORKLOAD, CLUSTER_QUEUE, RESOURCE_FLAVOR):
            with suppress(KubeError):  # it is no longer served
                for each in await side.client.list(kind):
                    about, bare = each["metadata"], {"metadata": {"finalizers": None}}
                    await side.client.merge_patch(kind, about["name"], bare, about.get("namespace"))
        await asyncio.sleep(0.3)


async def install(side: Side, words: Words, more: Mapping[str, Any]) -> None:
    """Kueue comes anew, without any object but the shared flavor; for both sides at once."""
    if side.ours:
        return
    for step in (side.kueue.install, side.kueue.start, side.kueue.register):
        await asyncio.to_thread(step)
    await side.client.create(RESOURCE_FLAVOR, queues.flavor(ANY))


ACTS: Final[Mapping[str, Act]] = {
    each.__name__: each
    for each in (
        *(annotate, checked, done, drop, edit, end, gone, install, job, label, lost, make, other, size),
        *(suspend, uninstall, wait, workload),
    )
}


async def act(side: Side, line: Line) -> None:
    """Do what a line of a story says."""
    words, more = (line, {}) if isinstance(line, str) else next(iter(line.items()))
    word, *rest = words.split()
    await ACTS[word](side, rest, more or {})

"""The scheduler: chooses a node for each pod, or explains why no node fits.

`place` is pure: (pod, nodes with what they hold) → a node, or why there is none. `FILTERS` is the table of
reasons; each says of a pod and a node "" or what is wrong. Of the nodes that fit, the least allocated wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from elasticjob.devcluster.quantity import Quantities, add, greatest, parse, parse_all
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import reference
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.errors import Conflict, NotFound
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import (
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Container,
    EventType,
    Node,
    ObjectReference,
    PersistentVolumeClaim,
    Pod,
    PodCondition,
)

NAME = "default-scheduler"


@dataclass(frozen=True)
class NodePods:
    """A node, and the pods that are on it or on their way."""

    node: Node
    pods: Sequence[Pod] = ()
    used: Quantities = field(default_factory=dict)

    @property
    def allocatable(self) -> Quantities:
        return parse_all(self.node.status.allocatable)


@dataclass(frozen=True)
class Verdict:
    """The chosen node of a pod; without one, `why` is the message of its PodScheduled condition."""

    node: str = ""
    why: str = ""


def place(pod: Pod, nodes: Sequence[NodePods]) -> Verdict:
    """The node for `pod`."""
    problems = {each.node.metadata.name: misfits(pod, each) for each in nodes}
    fitting = [each for each in nodes if not problems[each.node.metadata.name]]
    if not fitting:
        return Verdict(why=sentence(len(nodes), problems.values()))
    best = min(fitting, key=lambda each: (allocation(pod, each), each.node.metadata.name))
    return Verdict(best.node.metadata.name)


def misfits(pod: Pod, on: NodePods) -> list[str]:
    """Why the pod cannot go there: all shortages of the first filter that refuses."""
    return next((problems for check in FILTERS if (problems := check(pod, on))), [])


def sentence(nodes: int, problems: Iterable[Sequence[str]]) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`"""
    counts = Counter(problem for found in problems for problem in found)
    text = ", ".join(sorted(f"{count} {problem}" for problem, count in counts.items()))
    return f"0/{nodes} nodes are available: {text}." if text else "no nodes available to schedule pods"


def is_cordoned(pod: Pod, on: NodePods) -> list[str]:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    free = not on.node.spec.unschedulable or any(tolerates(t, taint) for t in pod.spec.tolerations)
    return [] if free else ["node(s) were unschedulable"]


def has_other_labels(pod: Pod, on: NodePods) -> list[str]:
    selected = pod.spec.node_selector.items() <= on.node.metadata.labels.items()
    affinity = (pod.spec.affinity or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if selected and (required is None or any(_term(term, on.node) for term in required["nodeSelectorTerms"])):
        return []
    return ["node(s) didn't match Pod's node affinity/selector"]


def has_untolerated_taint(pod: Pod, on: NodePods) -> list[str]:
    for taint in on.node.spec.taints:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    return []


def lacks_resources(pod: Pod, on: NodePods) -> list[str]:
    room = on.allocatable
    full = len(on.pods) + 1 > room.get("pods", Fraction(110))
    wanted = {name: amount for name, amount in requests(pod).items() if amount}
    nothing = Fraction(0)
    short = [n for n, much in wanted.items() if on.used.get(n, nothing) + much > room.get(n, nothing)]
    return [*(["Too many pods"] if full else []), *(f"Insufficient {name}" for name in short)]


Filter = Callable[[Pod, NodePods], list[str]]
FILTERS: tuple[Filter, ...] = (is_cordoned, has_untolerated_taint, has_other_labels, lacks_resources)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Does the toleration cover the taint?"""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _term(term: Manifest, node: Node) -> bool:
    """One nodeSelectorTerm: all its expressions; an empty one matches nothing."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    own = {"metadata.name": node.metadata.name}
    return all(_holds(each, node.metadata.labels) for each in labels) and all(_holds(e, own) for e in fields)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = expression.get("values") or [""]
    return _OPERATORS[expression["operator"]](value, values)


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and value.isdecimal() and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and value.isdecimal() and int(value) < int(values[0]),
}


def requests(pod: Pod) -> Quantities:
    """The requests of the pod: the sum of its containers and sidecars, or its largest init container if
    larger.
    """
    steady: Quantities = {}
    peak: Quantities = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            steady = add(steady, _requests(container))
            peak = greatest(peak, steady)
        else:
            peak = greatest(peak, add(steady, _requests(container)))
    for container in pod.spec.containers:
        steady = add(steady, _requests(container))
    return greatest(steady, peak)


def _requests(container: Container) -> Quantities:
    """Requests; a limit without a request counts as one."""
    return parse_all({**container.resources.limits, **container.resources.requests})


def allocation(pod: Pod, on: NodePods) -> Fraction:
    """The average share of cpu and memory in use, 0 to 1. A pod without requests counts a little."""
    little = {"cpu": parse("100m"), "memory": parse("200Mi")}
    wanted = requests(pod)
    room = on.allocatable
    shares = [
        (on.used.get(name, Fraction(0)) + wanted.get(name, least) + len(on.pods) * least / 100) / room[name]
        for name, least in little.items()
        if room.get(name)
    ]
    return sum(shares, Fraction(0)) / len(shares) if shares else Fraction(0)


def is_over(pod: Pod) -> bool:
    """Has the pod ended, so that its resources are free?"""
    return pod.status.phase in ("Succeeded", "Failed")


def needs_a_node(pod: Pod) -> bool:
    """Is it ours to place, and not gated?"""
    waits = not pod.spec.node_name and pod.metadata.deletion_timestamp is None and not is_over(pod)
    return waits and pod.spec.scheduler_name == NAME


def occupancy(nodes: Iterable[Node], pods: Iterable[Pod], assumed: Mapping[str, str]) -> list[NodePods]:
    """The nodes with their pods; `assumed` (uid → node) are bindings that the cache has not shown yet."""
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        name = pod.spec.node_name or assumed.get(pod.metadata.uid)
        if name and not is_over(pod):
            on.setdefault(name, []).append(pod)
    found = []
    for node in nodes:
        if is_ready(node):
            here = on.get(node.metadata.name, [])
            used: Quantities = {}
            for pod in here:
                used = add(used, requests(pod))
            found.append(NodePods(node, here, used))
    return found


def claims_of(pod: Pod) -> set[str]:
    """The names of the PersistentVolumeClaims that the pod mounts."""
    sources = (volume.get("persistentVolumeClaim") for volume in pod.spec.volumes)
    return {source["claimName"] for source in sources if source}


def is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


class Recorder(Protocol):
    """Where events go."""

    def event(self, regarding: ObjectReference, type_: EventType, reason: str, note: str) -> None: ...


class Scheduler:
    """Binds pods to nodes, one after the other; tries the waiting ones again when a node or a pod makes
    room.
    """

    def __init__(
        self,
        client: Client,
        pods: Cache[Pod],
        nodes: Cache[Node],
        claims: Cache[PersistentVolumeClaim],
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._client, self._pods, self._nodes, self._claims = client, pods, nodes, claims
        self._recorder, self._clock = recorder, clock
        self._assumed: dict[str, str] = {}

    def controller(self) -> Controller:
        watches = ((NODE, self._waiting), (POD, self._room_after), (PERSISTENT_VOLUME_CLAIM, self._waiting))
        return Controller("scheduler", self.reconcile, for_=POD, watches=watches)

    async def reconcile(self, key: Key) -> Result:
        """Bind one pod to a node, or set the condition that explains why no node fits."""
        pod = self._pods.get(key)
        if pod is None or not needs_a_node(pod):
            return Result.done()
        if pod.spec.scheduling_gates:
            await self._say(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return Result.done()
        there = {claim.metadata.name for claim in self._claims.list(key.namespace)}
        absent = sorted(claims_of(pod) - there)
        verdict = (
            Verdict(why=f'persistentvolumeclaim "{absent[0]}" not found') if absent else self._choose(pod)
        )
        if verdict.node:
            await self._bind(pod, verdict.node)
        else:
            await self._say(pod, "Unschedulable", verdict.why)
        return Result.done()

    def _choose(self, pod: Pod) -> Verdict:
        """No await between reading and assuming: two pods never get the same room."""
        pods = self._pods.list()
        self._assumed = {
            each.metadata.uid: self._assumed[each.metadata.uid]
            for each in pods
            if each.metadata.uid in self._assumed
            and not each.spec.node_name
            and each.metadata.uid != pod.metadata.uid
        }
        verdict = place(pod, occupancy(self._nodes.list(), pods, self._assumed))
        if verdict.node:
            self._assumed[pod.metadata.uid] = verdict.node
        return verdict

    async def _bind(self, pod: Pod, node: str) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": name, "namespace": namespace, "uid": pod.metadata.uid}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        try:
            await self._client.post(POD, name, "binding", binding, namespace)
        except (NotFound, Conflict):  # deleted or bound by another meanwhile: the cache will show it
            self._assumed.pop(pod.metadata.uid, None)
            return
        note = f"Successfully assigned {namespace}/{name} to {node}"
        self._recorder.event(reference(POD, pod), "Normal", "Scheduled", note)

    async def _say(self, pod: Pod, reason: str, message: str) -> None:
        """The condition PodScheduled is False, for this reason."""
        known = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
        if known is not None and (known.reason, known.message) == (reason, message):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": _transition(known, self._clock),
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await self._client.merge_patch(POD, name, patch, namespace, subresource="status", strategic=True)
        if reason == "Unschedulable":
            self._recorder.event(reference(POD, pod), "Warning", "FailedScheduling", message)

    def _waiting(self, _: object = None) -> list[Key]:
        pods = [pod for pod in self._pods.list() if needs_a_node(pod)]
        return [Key(pod.metadata.namespace, pod.metadata.name) for pod in pods]

    def _room_after(self, pod: Pod) -> list[Key]:
        """The pods that wait, when one has ended or is about to be gone."""
        leaves = is_over(pod) or pod.metadata.deletion_timestamp is not None
        return self._waiting() if leaves else []


def _transition(known: PodCondition | None, clock: Clock) -> str:
    same = known is not None and known.status == "False" and known.last_transition_time is not None
    moment = known.last_transition_time if known is not None and same else clock.now()
    return (moment or clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ")

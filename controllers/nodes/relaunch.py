"""Lives of a node: its pods, oldest first, and what happens to it next.

A *node* is a place in the job (`<job>-<role>-<index>`), a *life* is one pod that held it. The rules:

    a pod that runs, or will, keeps its place              → RUNS
    the node has succeeded, and its policy is not Always   → DONE
    a pod on its way out holds it while a container runs   → LEAVES    (but not if it is lost)
    the last life failed, and policy or budget say no more → SPENT
    the last life is over, and its pause is not            → PAUSES    (until `due`)
    anything else                                          → DUE       (make the next life now)

What is repeated for free backs off, is placed elsewhere where it can be, and is told: pods that end or are
lost within a minute, one after another, without a restart that counts. Their number is written on each pod.

A pod is lost when its machine is gone, and when it should have ended a minute ago on a machine that does not
report: without power, no kubelet will ever say that it has ended.

What a node achieved or suffered outlives its pods: success, failure for good, restarts and the number of its
next pod are in the owner's status, and are written there before the operator deletes a pod that shows them.
Restarts that used the budget are written on each pod too (how many preceded it), and the larger counts:
neither a deleted pod nor a late status lowers the number, and no pass counts twice. How many of them are
forgiven is written on each pod; the owner's status has those that are not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import Final

from elasticjob.api.readings import after, by_index, decode, indexes, is_number, number
from elasticjob.api.v1alpha1.common import (
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_RELAUNCH,
    LABEL_ROLE,
    MOST_NODES,
    RESTARTS_SPENT,
)
from elasticjob.api.v1alpha1.containers import main_container, main_status
from elasticjob.api.v1alpha1.elasticjob import RestartPolicy
from elasticjob.api.v1alpha1.jobresource import JobResourceStatus
from elasticjob.api.v1alpha1.kueue import WORKLOAD_OF
from elasticjob.controllers.nodes.drains import Notice
from elasticjob.controllers.nodes.exits import Exit, ending
from elasticjob.controllers.parts import names
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.conditions import find, is_true
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Pod
from elasticjob.sizing.exits import ExitReason

STARTS = timedelta(seconds=45)
"""A program is ready by then, also where many start at once."""
LONG_LIFE = timedelta(minutes=1)
FIRST_PAUSE = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(seconds=60)
LONGEST_FREE_PAUSE = timedelta(minutes=5)
"""The longest pause of a container in CrashLoopBackOff, since no budget ends restarts that are free."""
AFTER_SUCCESS = timedelta(seconds=10)
"""Nodes that end together may end the job: what succeeded is replaced after this pause."""
SILENCE = timedelta(minutes=1)
"""How long after its grace period a pod that is being deleted may go on where the machine does not report."""
POD_FAILED = "PodFailed"
"""The reason of nodes that failed and were not restarted once."""
POD_FAILURE_POLICY = "PodFailurePolicy"
"""The reason of nodes, and of jobs, that failed in a way for which failurePolicy says FailJob."""
CANNOT_START = "CannotStart"
"""The reason of nodes that could not start, and would not in another pod."""
OUT_OF_MEMORY = "OutOfMemory"
"""The reason of nodes that spent their restarts, the last one by an OOM kill."""
RESIZING = "Resizing"
"""The reason of nodes that are given other resources, and have not got them."""
RESIZES = frozenset({"PodResizePending", "PodResizeInProgress"})
"""Conditions of a pod whose containers have other resources than its spec."""
UNHEALTHY = "Unhealthy"
"""Health of a device that does not work; `Unknown` is that of one that is not heard of for a while."""

Place = tuple[str, int]
"""Role and index of a node."""

VOLUMES = (
    ("configMap", ("name",), "ConfigMap"),
    ("secret", ("secretName", "name"), "Secret"),
    ("persistentVolumeClaim", ("claimName",), "PersistentVolumeClaim"),
)
"""Sources of volumes without which a pod does not start: its key, the fields with the name, and the kind."""


@dataclass(frozen=True)
class Life:
    """One pod of a node, as far as decisions need it."""

    name: str
    uid: str
    role: str
    index: int
    relaunch: int = 0
    restarts_before: int = 0
    forgiven_before: int = 0
    repeats_before: int = 0  # pods of its node that ended soon, one after another, and did not count
    moves: int = 0  # pods of its node, itself included, that follow one that still ran, or was told to end
    created: datetime | None = None
    ended: Exit | None = None
    lingers: bool = False  # its main container has ended, another goes on
    running: bool = False
    ready: bool = False
    unready: datetime | None = None  # since when its probe fails, while it runs
    addressed: bool = False  # it has an IP
    terminating: bool = False
    deleted_at: datetime | None = None  # when it was told to end, if that is known
    lost: bool = False  # its machine is no longer in the cluster, or it is given up
    given_up: datetime | None = None  # when it is lost: it is being deleted where the machine does not report
    machine: str = ""
    waiting: str = ""  # why it does not run yet, in a sentence: `Reason: message`
    start: str = ""  # the same where only the time it takes is a reason: what it has still to do
    since: datetime | None = None  # when it was placed on its machine, or created
    needs: tuple[str, ...] = ()  # the objects of its volumes: `ConfigMap rates`
    resource: Mapping[str, str] = field(default_factory=dict)  # requests of its training container
    asked: Mapping[str, str] = field(default_factory=dict)  # the resource that it was made or resized for
    resize: str = ""  # "" | "Deferred" | "Infeasible" | "refused"
    unresized: str = ""  # why it has not got the resources of its spec yet, in a sentence
    released: bool = False
    version: str = ""
    notice: Notice | None = None  # its machine is about to leave
    stands_in: int | None = None  # the index of the node for which it was made beforehand
    broken: str = ""  # the devices of its that the kubelet calls unhealthy
    workload: str = ""  # of Kueue, whose quota it uses

    @property
    def alive(self) -> bool:
        """Whether its program runs or may still run."""
        return self.ended is None and not self.lost

    @property
    def is_short(self) -> bool:
        """Whether it was over within a minute, its wait for a machine included."""
        at, started = (self.ended.at, self.ended.started) if self.ended else (None, None)
        began = self.created or started
        return at is None or began is None or at - began < LONG_LIFE

    @property
    def loss(self) -> str:
        """What happened to the machine of a life that is lost."""
        return "does not report" if self.given_up else "is no longer in the cluster"

    @property
    def succeeded(self) -> bool:
        """Whether its program has done its work: by itself, and not because the pod was told to end."""
        if self.ended is None or self.ended.reason is not ExitReason.SUCCEEDED:
            return False
        at, told = self.ended.at, self.deleted_at
        return not self.terminating or (at is not None and told is not None and at < told)

    @property
    def over(self) -> bool:
        """Whether none of its containers runs or may run, so that it holds no resources."""
        return self.ended is not None and not self.lingers

    @property
    def leaves(self) -> bool:
        """Whether its pod was told to end, or taken from its machine: what follows is no restart."""
        told = self.terminating or (self.ended is not None and self.ended.reason in LEAVES)
        return told and not self.lost

    @property
    def frees(self) -> bool:
        """Whether it holds resources and is to be deleted where none is wanted: once, and again when lost."""
        return not self.over and (self.lost or not self.terminating)

    @property
    def restarts(self) -> int:
        """Restarts of its node that used the budget up to this life, its own end included."""
        counts = self.ended is not None and not self.terminating and self.ended.consequence.counts
        return self.restarts_before + counts

    def without(self, missing: Container[str]) -> Life:
        """Return this life, which has not started because some of its objects are missing."""
        if not (gone := [need for need in self.needs if need in missing]):
            return self
        why = f"{self.machine} has not started the pod: there is no {', no '.join(gone)}"
        return replace(self, start=f"ContainerCreating: {why}")

    def as_of(self, now: datetime) -> Life:
        """Return this life, lost if it is given up by now."""
        return replace(self, lost=True) if self.given_up and self.given_up <= now else self


LEAVES: Final = frozenset({ExitReason.TAKEN_AWAY, ExitReason.RUN_AGAIN})
"""Ends of pods that leave a machine."""


class Standing(StrEnum):
    """The next step of a node; see the rules above."""

    RUNS = "runs"
    LEAVES = "leaves"
    DONE = "done"
    SPENT = "spent"
    PAUSES = "pauses"
    DUE = "due"


@dataclass(frozen=True)
class Policy:
    """How often nodes of a role are created again."""

    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    budget: int = 3
    forgive: timedelta | None = None  # after a life as long, earlier failures do not count; None: they do


@dataclass(frozen=True)
class Node:
    """All visible lives of one place, oldest first, and the facts of earlier ones in the owner's status."""

    role: str
    index: int
    lives: tuple[Life, ...] = ()
    remembered: int = 0  # restarts
    relaunch: int = 0  # the least number of the next life
    completed: bool = False
    failed: bool = False  # for good

    @cached_property
    def latest(self) -> Life | None:
        """The life that holds the place, or held it last."""
        return self.lives[-1] if self.lives else None

    @property
    def succeeded(self) -> bool:
        """Whether it has done its work, also where the pod that did is gone."""
        return self.completed or (self.latest is not None and self.latest.succeeded)

    @property
    def has_past(self) -> bool:
        """Whether the owner's status has a fact of it."""
        return bool(self.remembered or self.relaunch or self.completed or self.failed)

    @property
    def restarts(self) -> int:
        """Restarts that used the budget, the end of the latest life included."""
        return max(self.remembered, self.latest.restarts if self.latest else 0)

    def amnesty(self, policy: Policy) -> int:
        """Return how many restarts do not count any more: those before a long life."""
        life = self.latest
        end = life.ended if life else None
        if life is None or end is None or not (policy.forgive and end.at and end.started):
            return life.forgiven_before if life else 0
        if end.at - end.started < policy.forgive:
            return life.forgiven_before
        return self.restarts - (end.consequence.counts and not life.terminating)

    def charges(self, policy: Policy) -> int:
        """Return how many restarts count against the budget."""
        return max(0, self.restarts - self.amnesty(policy))

    @property
    def replacements(self) -> int:
        """Pods that were made after a failure or a kill; the next one is not counted yet."""
        return max(self.latest.relaunch - self.moves, self.latest.restarts_before) if self.latest else 0

    @property
    def moves(self) -> int:
        """Pods that follow one that still ran, or was told to end: these are no restarts."""
        return self.latest.moves if self.latest else 0

    @property
    def next_relaunch(self) -> int:
        """The number of the next life: it never falls, and none is given again after a failure or a loss."""
        return max(self.relaunch, self.latest.relaunch + 1 if self.latest else 0)

    @property
    def next_number(self) -> int:
        """The number of the next life if the latest is deleted now: one that was well hands its number on.

        So does one that has ended since it was told to, or left its machine: whether that is seen is chance.
        """
        life = self.latest
        failed = life is not None and not life.alive and not life.leaves
        return max(self.relaunch, life.relaunch + failed if life else 0)

    @property
    def machines_to_avoid(self) -> tuple[str, ...]:
        """Machines on which a life of this node met broken hardware."""
        ended = (life for life in self.lives if life.ended and life.machine)
        return tuple(
            sorted({life.machine for life in ended if life.ended and life.ended.consequence.elsewhere})
        )

    @property
    def machines_to_leave(self) -> tuple[str, ...]:
        """Machines on which a life of this node was over soon, for which its program is not to blame."""
        alone = (life for life in self.lives if life.machine and not life.terminating)
        ended = (life for life in alone if life.ended and life.is_short)
        return tuple(
            sorted({life.machine for life in ended if life.ended and life.ended.consequence.rather_elsewhere})
        )

    def repeats(self, now: datetime) -> int:
        """Return how many lives, up to the latest, were over soon, one after another, and did not count."""
        life = self.latest
        if life is None or life.alive:
            return life.repeats_before if life else 0
        if life.ended is not None:
            free = not life.ended.consequence.counts and life.ended.reason is not ExitReason.SUCCEEDED
            soon = free and life.is_short
        else:
            soon = life.created is not None and now - life.created < LONG_LIFE
        return life.repeats_before + 1 if soon else 0

    def told_repeats(self, now: datetime) -> str:
        """Return how often the same has happened, to follow a sentence; "" for the first time."""
        times = self.repeats(now)
        return f"; {times} pods in a row were over within a minute" if times > 1 else ""

    def standing(self, policy: Policy, now: datetime) -> Standing:
        """Return the next step of this node."""
        alive = [life for life in self.lives if life.alive]
        if any(not life.terminating for life in alive):
            return Standing.RUNS
        if self.succeeded and policy.restart is not RestartPolicy.ALWAYS:
            return Standing.DONE
        if alive or (self.latest and self.latest.terminating and not (self.latest.lost or self.latest.over)):
            return Standing.LEAVES
        if self.is_spent(policy):
            return Standing.SPENT
        if self.latest and self.latest.terminating and self.latest.ended:
            return Standing.DUE
        return Standing.PAUSES if self.due(now) > now else Standing.DUE

    def is_spent(self, policy: Policy) -> bool:
        """Whether the latest life ended in a way after which policy or budget allow no other."""
        life = self.latest
        if life is None or life.terminating:
            return self.failed
        if life.ended is None or life.ended.reason is ExitReason.SUCCEEDED:
            return False
        consequence = life.ended.consequence
        if policy.restart not in consequence.relaunch_under:
            return True
        return consequence.counts and (self.charges(policy) > policy.budget or self._never_starts)

    def why_spent(self, policy: Policy) -> tuple[str, str]:
        """Return the reason, and a sentence, why no life follows the latest, which failed."""
        end = self.latest.ended if self.latest else None
        if end is not None and end.consequence.fails_job:
            return POD_FAILURE_POLICY, "failurePolicy: FailJob"
        if end is not None and policy.restart not in end.consequence.relaunch_under:
            return POD_FAILED, f"restartPolicy {policy.restart} does not restart it"
        if self._never_starts:
            return CANNOT_START, "another start would fail in the same way"
        out_of_memory = end is not None and end.reason is ExitReason.OOM_KILLED
        reason = OUT_OF_MEMORY if out_of_memory else RESTARTS_SPENT if policy.budget else POD_FAILED
        return reason, f"restartCount {policy.budget} is spent" if policy.budget else "restartCount is 0"

    @property
    def _never_starts(self) -> bool:
        """Whether the agent of the latest pod says so, or the last two pods could not start."""
        ends = [life.ended for life in self.lives[-2:] if life.ended]
        final = bool(ends) and ends[-1].is_final
        return final or [end.reason for end in ends] == [ExitReason.CANNOT_START] * 2

    def due(self, now: datetime) -> datetime:
        """Return when the next life may begin."""
        life = self.latest
        end = life.ended if life else None
        since = end.at if end else life.created if life else None
        if since is None:
            return now
        if end is not None and end.reason is ExitReason.SUCCEEDED:
            return after(since, AFTER_SUCCESS)
        if end is not None and end.consequence.counts:
            return after(since, pause(self.restarts, LONGEST_PAUSE))
        return after(since, pause(self.repeats(now), LONGEST_FREE_PAUSE))


def pause(times: int, longest: timedelta) -> timedelta:
    """Return how long the next life waits: not at all the first time, then twice as long each time."""
    if times <= 1:
        return timedelta(0)
    return min(timedelta(seconds=FIRST_PAUSE.total_seconds() * 2 ** min(times - 2, 10)), longest)


def nodes(lives: Iterable[Life], past: JobResourceStatus) -> dict[Place, Node]:
    """Return the nodes that have a pod, or of whose earlier pods the owner's status has a fact."""
    ordered = sorted(lives, key=lambda life: (life.role, life.index, life.relaunch))
    found = {
        (role, index): Node(role, index, lives=tuple(group))
        for (role, index), group in groupby(ordered, key=lambda life: (life.role, life.index))
    }
    restarts, numbers = _counts(past.restarts), _counts(past.relaunches)
    completed, failed = _places(past.completed_indexes), _places(past.failed_indexes)
    for place in {*restarts, *numbers, *completed, *failed}:
        found[place] = replace(
            found.get(place, Node(*place)),
            remembered=restarts.get(place, 0),
            relaunch=numbers.get(place, 0),
            completed=place in completed,
            failed=place in failed,
        )
    return found


def _counts(roles: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    return {(role, index): n for role, counts in roles.items() for index, n in by_index(counts).items()}


def _places(roles: Mapping[str, str]) -> frozenset[Place]:
    return frozenset((role, index) for role, text in roles.items() for index in indexes(text, MOST_NODES))


def life_of(
    pod: Pod, machines: Container[str], silent: Container[str] = (), notices: Iterable[Notice] = ()
) -> Life | None:
    """Return a pod as a life, None without role and index labels.

    `machines` are the cluster's Nodes, `silent` those of them that do not report, and `notices`
    are what the pod's own says about its end.
    """
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    role, index = labels.get(LABEL_ROLE, ""), labels.get(LABEL_INDEX, "")
    if not role or not is_number(index):
        return None
    end = ending(pod)
    status = main_status(pod)
    started = status.state.running.started_at if status and status.state.running else None
    given, asked = annotations.get(names.STANDS_IN), decode(annotations.get(names.RESOURCE), _RESOURCE)
    machine, leaves_at = pod.spec.node_name, pod.metadata.deletion_timestamp
    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return Life(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        role=role,
        index=int(index),
        relaunch=number(labels.get(LABEL_RELAUNCH)),
        restarts_before=number(annotations.get(names.RESTARTS)),
        forgiven_before=number(annotations.get(names.FORGIVEN)),
        repeats_before=number(annotations.get(names.REPEATS)),
        moves=number(annotations.get(names.MOVES)),
        created=pod.metadata.creation_timestamp,
        ended=end,
        lingers=end is not None and pod.status.phase not in ("Succeeded", "Failed") and _goes_on(pod),
        running=end is None and bool(status and status.state.running),
        ready=end is None and is_true(pod.status.conditions, "Ready"),
        unready=_unready(pod, started) if end is None else None,
        addressed=bool(pod.status.pod_ip),
        terminating=leaves_at is not None,
        deleted_at=leaves_at - grace if leaves_at and grace else None,
        lost=bool(machine) and machine not in machines,
        given_up=after(leaves_at, SILENCE) if leaves_at and machine in silent else None,
        machine=machine,
        waiting="" if end else waiting(pod),
        start=start(pod) if pod.status.phase in ("", "Pending") else "",
        since=_since(pod),
        needs=needs(pod),
        resource=_resource(pod),
        asked=asked or {},
        resize=_resize(pod),
        unresized="" if end or leaves_at else _why_not_resized(pod),
        released=annotations.get(names.RELEASED) == "true",
        version=pod.metadata.resource_version,
        notice=next((each for each in notices if each.holds_for(pod.spec.tolerations)), None),
        stands_in=None if given is None else number(given),
        broken=broken_devices(pod),
        workload=annotations.get(WORKLOAD_OF, ""),
    )


def _goes_on(pod: Pod) -> bool:
    """Whether any container of a pod may still run; the kubelet says seconds later that a pod is over."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ended = {status.name for status in statuses if status.state.terminated}
    sidecars = (container for container in pod.spec.init_containers if container.restart_policy)
    return any(container.name not in ended for container in (*pod.spec.containers, *sidecars))


def broken_devices(pod: Pod) -> str:
    """Return the devices of a pod that the kubelet calls unhealthy, "" if there are none."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    kinds = (kind for status in statuses for kind in status.allocated_resources_status)
    found = {
        f"{kind.name} {device.resource_id}"
        for kind in kinds
        for device in kind.resources
        if device.health == UNHEALTHY
    }
    return ", ".join(sorted(found))


def waiting(pod: Pod) -> str:
    """Return why `pod` does not run yet, in a sentence, or "" if it does or nothing is known."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        held = status.state.waiting
        if held and held.reason not in ("", "ContainerCreating", "PodInitializing"):
            return _held(held.reason, held.message, status.image or _image(pod, status.name))
    return ""


def start(pod: Pod) -> str:
    """Return what a pod that has not started has still to do, in a sentence."""
    if not pod.spec.node_name:
        return "Unscheduled: no scheduler has placed it on a node"
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy}
    for status in pod.status.init_container_statuses:
        if status.state.running and status.name not in sidecars:
            return f"PodInitializing: init container {status.name} runs"
    token = f"Secret {names.token(pod.metadata.labels.get(LABEL_JOB, ''))}"  # made before the pod
    volumes = ", ".join(need for need in needs(pod) if need != token)
    which = f", which needs {volumes}" if volumes else ""
    return f"ContainerCreating: {pod.spec.node_name} has not started the pod{which}; see the pod's events"


def needs(pod: Pod) -> tuple[str, ...]:
    """Return the objects without which no container of a pod starts, such as `ConfigMap rates`."""
    volumes = pod.spec.volumes
    projected = (each for volume in volumes for each in (volume.get("projected") or {}).get("sources") or ())
    found = (_need(source) for source in (*volumes, *projected))
    return tuple(dict.fromkeys(filter(None, found)))


def _need(volume: Manifest) -> str:
    for source, fields, kind in VOLUMES:
        found: Manifest = volume.get(source) or {}
        name = next((found[field_] for field_ in fields if found.get(field_)), "")
        if name and not found.get("optional"):
            return f"{kind} {name}"
    return ""


def _unready(pod: Pod, started: datetime | None) -> datetime | None:
    """Return since when the probe of a pod fails: a program that starts has its time."""
    ready = find(pod.status.conditions, "Ready")
    if ready is None or ready.status != "False" or ready.last_transition_time is None or started is None:
        return None
    return max(ready.last_transition_time, after(started, STARTS))


def _since(pod: Pod) -> datetime | None:
    placed = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "True")
    times = (c.last_transition_time for c in placed)
    return next(times, None) or pod.metadata.creation_timestamp


def _held(reason: str, message: str, image: str) -> str:
    if "Image" in reason:
        return f"{reason}: {image}" if image in message else f"{reason}: {image}: {message}".rstrip(": ")
    return f"{reason}: {message}" if message else reason


def _image(pod: Pod, container: str) -> str:
    every = (*pod.spec.init_containers, *pod.spec.containers)
    return next((c.image for c in every if c.name == container), "")


_RESOURCE = JsonReader(dict[str, str])


def _resource(pod: Pod) -> dict[str, str]:
    main = main_container(pod)
    if main is None:
        return {}
    return {name: str(amount) for name, amount in (main.resources.requests | main.resources.limits).items()}


def _resize(pod: Pod) -> str:
    if pod.metadata.annotations.get(names.RESIZE) == "refused":
        return "refused"
    pending = (c for c in pod.status.conditions if c.type == "PodResizePending" and c.status == "True")
    return next((c.reason for c in pending), pod.status.resize)


def _why_not_resized(pod: Pod) -> str:
    """Return why a pod has not got the resources of its spec: room, or memory that is in use, say."""
    conditions = (c for c in pod.status.conditions if c.type in RESIZES and c.status == "True")
    told = [c.message or c.reason for c in conditions]
    if why := next(filter(None, told), ""):
        return f"the kubelet has not resized it: {why}"
    seen = pod.status.observed_generation
    return "the kubelet has not resized it yet" if told or 0 < seen < pod.metadata.generation else ""

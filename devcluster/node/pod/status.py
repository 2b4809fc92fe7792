"""The status of a pod: `(pod, record, now) → status`, pure. Reasons and messages are a real kubelet's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from elasticjob.devcluster.node.pod.decide import ERR_IMAGE_PULL, SHOWN_AS_ERROR, Rules
from elasticjob.devcluster.node.pod.life import (
    Backoff,
    failed_init,
    has_done_its_part,
    is_initialized,
    is_over,
    is_settled,
    is_sidecar,
    is_terminating,
    pause,
    restart_at,
)
from elasticjob.devcluster.node.pod.record import ContainerRecord, PodRecord, Run, every_container
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Container, Pod, PodCondition

MINE = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
RESIZE = ("PodResizePending", "PodResizeInProgress")


def status(pod: Pod, record: PodRecord, now: datetime, rules: Rules, host: str) -> tuple[Manifest, PodRecord]:
    """The whole status to write, and the record with the conditions in it."""
    record = replace(record, conditions=_conditions(pod, record, now))
    doom = record.doom
    shown: Manifest = {
        "phase": phase(pod, record),
        "reason": doom.reason if doom else None,
        "message": doom.message if doom else None,
        "conditions": [_condition(condition) for condition in record.conditions],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": record.ip,
        "podIPs": [{"ip": record.ip}],
        "startTime": stamp(record.since),
        "qosClass": qos_class(pod),
        "observedGeneration": pod.metadata.generation or None,
        "containerStatuses": [_container(pod, c, record, now, rules) for c in pod.spec.containers],
    }
    if pod.spec.init_containers:
        shown["initContainerStatuses"] = [
            _container(pod, c, record, now, rules) for c in pod.spec.init_containers
        ]
    return {name: value for name, value in shown.items() if value is not None}, record


def stamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as the API writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase(pod: Pod, record: PodRecord) -> str:
    """Pending, Running, Succeeded or Failed."""
    if record.doom is not None or failed_init(pod, record) is not None:
        return "Failed"
    if is_settled(pod, record):
        if any(record[c.name].running for c in pod.spec.init_containers if is_sidecar(c)):
            return "Running"
        failed = [c for c in pod.spec.containers if (past := record[c.name].past) is not None and past.code]
        return "Failed" if failed else "Succeeded"
    if any(record[container.name].run is None for container in pod.spec.containers):
        return "Pending"
    return "Running"


def qos_class(pod: Pod) -> str:
    """Guaranteed: all have cpu and memory limits equal to the requests. BestEffort: no limits or requests at
    all.
    """
    every = [container.resources for container in every_container(pod)]
    if not any(
        name in given for r in every for given in (r.requests, r.limits) for name in ("cpu", "memory")
    ):
        return "BestEffort"
    same = all(
        r.limits.get(n) is not None and r.requests.get(n, r.limits[n]) == r.limits[n]
        for r in every
        for n in ("cpu", "memory")
    )
    return "Guaranteed" if same else "Burstable"


def _container(pod: Pod, container: Container, record: PodRecord, now: datetime, rules: Rules) -> Manifest:
    own = record[container.name]
    state, last = _states(pod, container, record, now, rules)
    initial = container in pod.spec.init_containers and not is_sidecar(container)
    ready = own.past is not None and own.past.code == 0 if initial else own.is_ready(container)
    shown: Manifest = {
        "name": container.name,
        "image": container.image,
        "imageID": f"devcluster://{container.image}" if own.run is not None else "",
        "ready": ready,
        "started": own.running if initial else own.has_started(container),
        "restartCount": own.restarts,
        "state": state,
        "lastState": last,
    }
    if own.run is not None:
        shown["containerID"] = own.run.id
        shown["resources"] = msgspec.to_builtins(own.resources)
        shown["allocatedResources"] = dict(own.resources.requests)
    return shown


def _states(
    pod: Pod, container: Container, record: PodRecord, now: datetime, rules: Rules
) -> tuple[Manifest, Manifest]:
    """`state` and `lastState`."""
    own = record[container.name]
    before = {"terminated": _terminated(own.previous)} if own.previous is not None else {}
    if own.run is not None and own.running:
        return {"running": {"startedAt": stamp(own.run.started)}}, before
    past = own.past
    ended = {"terminated": _terminated(past)} if past is not None else {}
    if past is not None and is_over(pod, container, record):
        return ended, before
    waiting = _waiting(pod, container, record, now, rules)
    return (ended, before) if past is not None and waiting is None else ({"waiting": waiting or {}}, ended)


def _waiting(
    pod: Pod, container: Container, record: PodRecord, now: datetime, rules: Rules
) -> Manifest | None:
    """The reason why the container does not run; None if it is about to be restarted."""
    own = record[container.name]
    if own.past is not None and (retry := restart_at(own, rules.restart)) is not None and now < retry:
        return {"reason": "CrashLoopBackOff", "message": _backing_off(pod, container, own, rules.restart)}
    if own.refusal is not None:
        pulling = own.refusal.reason == ERR_IMAGE_PULL
        if pulling and now >= own.refusal.since + SHOWN_AS_ERROR:
            return {
                "reason": "ImagePullBackOff",
                "message": f'Back-off pulling image "{container.image}": {own.refusal.message}',
            }
        return {"reason": own.refusal.reason, "message": own.refusal.message}
    if own.past is not None:
        return None
    initial = container in pod.spec.init_containers
    waits = bool(pod.spec.init_containers) and not (is_initialized(pod, record) and not initial)
    return {"reason": "PodInitializing" if waits else "ContainerCreating"}


def _backing_off(pod: Pod, container: Container, own: ContainerRecord, backoff: Backoff) -> str:
    seconds = pause(own, backoff).total_seconds()
    name = f"container={container.name} pod={pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"
    return f"back-off {seconds:g}s restarting failed {name}"


def _terminated(run: Run) -> Manifest:
    shown: Manifest = {
        "exitCode": run.code,
        "reason": run.reason,
        "startedAt": stamp(run.started),
        "finishedAt": stamp(run.ended or run.started),
        "containerID": run.id,
    }
    return {**shown, "message": run.message} if run.message else shown


def _conditions(pod: Pod, record: PodRecord, now: datetime) -> tuple[PodCondition, ...]:
    """Ours as they are now, and those of others as they were."""
    earlier = {condition.type: condition for condition in (*pod.status.conditions, *record.conditions)}
    wanted = [*_own_conditions(pod, record), *_resizes(pod, record)]
    mine = [_transition(condition, earlier.get(condition.type), now) for condition in wanted]
    theirs = [c for c in pod.status.conditions if c.type not in (*MINE, *RESIZE)]
    return (*mine, *theirs)


def _own_conditions(pod: Pod, record: PodRecord) -> list[PodCondition]:
    lazy = [c.name for c in pod.spec.init_containers if not has_done_its_part(c, record)]
    served = [*(c for c in pod.spec.init_containers if is_sidecar(c)), *pod.spec.containers]
    unready = [c.name for c in served if not record[c.name].is_ready(c)]
    begun = any(own.alive for own in record.containers.values())
    ready = _verdict("ContainersReady", pod, record, unready)
    initialized = PodCondition(type="Initialized", status="True")
    if is_settled(pod, record) and phase(pod, record) == "Succeeded":
        initialized = PodCondition(type="Initialized", status="True", reason="PodCompleted")
    elif lazy:
        text = f"containers with incomplete status: [{' '.join(lazy)}]"
        initialized = PodCondition(
            type="Initialized", status="False", reason="ContainersNotInitialized", message=text
        )
    return [
        PodCondition(type="PodReadyToStartContainers", status=str(begun)),
        initialized,
        msgspec.structs.replace(ready, type="Ready"),
        ready,
        PodCondition(type="PodScheduled", status="True"),
    ]


def _verdict(type_: str, pod: Pod, record: PodRecord, unready: Sequence[str]) -> PodCondition:
    if is_settled(pod, record) and not is_terminating(pod):
        reason = "PodCompleted" if phase(pod, record) == "Succeeded" else "PodFailed"
        return PodCondition(type=type_, status="False", reason=reason)
    if not unready:
        return PodCondition(type=type_, status="True")
    text = f"containers with unready status: [{' '.join(unready)}]"
    return PodCondition(type=type_, status="False", reason="ContainersNotReady", message=text)


def _resizes(pod: Pod, record: PodRecord) -> list[PodCondition]:
    found = [
        (c.name, refusal) for c in every_container(pod) if (refusal := record[c.name].resize) is not None
    ]
    return [
        PodCondition(
            type="PodResizePending" if refusal.reason == "Infeasible" else "PodResizeInProgress",
            status="True",
            reason=refusal.reason,
            message=refusal.message,
        )
        for _, refusal in found[:1]
    ]


def _transition(condition: PodCondition, earlier: PodCondition | None, now: datetime) -> PodCondition:
    """The transition time moves only with the status."""
    same = (
        earlier is not None
        and earlier.status == condition.status
        and earlier.last_transition_time is not None
    )
    moment = earlier.last_transition_time if earlier is not None and same else now
    return msgspec.structs.replace(condition, last_transition_time=moment)


def _condition(condition: PodCondition) -> Manifest:
    shown: Manifest = {"type": condition.type, "status": condition.status}
    shown.update(
        {"lastTransitionTime": stamp(condition.last_transition_time)}
        if condition.last_transition_time
        else {}
    )
    shown.update({"reason": condition.reason} if condition.reason else {})
    shown.update({"message": condition.message} if condition.message else {})
    return shown

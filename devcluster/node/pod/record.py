"""The kubelet's memory of a pod: frozen values, and the events that change them.

    waiting ──start──► starting ──started──► running ──ended──► ended ──(restart policy, back-off)──► starting
                           └──refused──► waiting (retried)         └── for good

A `PodRecord` is the snapshot on which `decide` decides. Events (`on_start`, `on_end`, …) are pure: record in,
record out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from elasticjob.kube.objects.views import Container, Pod, PodCondition, Resources


@dataclass(frozen=True)
class Run:
    """One execution of a container. `ended` is None while it runs."""

    id: str
    started: datetime
    ended: datetime | None = None
    code: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Refusal:
    """Why the container could not be started; it is tried again at `retry`."""

    reason: str
    message: str
    since: datetime
    retry: datetime
    attempts: int = 1


@dataclass(frozen=True)
class Stopping:
    """The container got its stop signal; at `deadline` it is killed."""

    deadline: datetime
    killed: bool = False


class Check(StrEnum):
    """The three probes of a container."""

    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"


@dataclass(frozen=True)
class ProbeState:
    """One probe of the present run: its last verdict and the results that lead to the next one."""

    due: datetime
    passed: bool | None = None
    streak: int = 0
    """Results in a row: successes above zero, failures below."""
    busy: bool = False


@dataclass(frozen=True)
class ContainerRecord:
    """One container of a pod."""

    run: Run | None = None
    previous: Run | None = None
    restarts: int = 0
    forgiven: int = 0
    """How many of the restarts no longer count for the back-off."""
    starting: bool = False
    refusal: Refusal | None = None
    stopping: Stopping | None = None
    checks: Mapping[Check, ProbeState] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    """The arguments of the present run."""
    resize: Refusal | None = None
    """Why the present run could not be given the resources of the spec."""
    reported_run: str = ""
    """The run after which the BackOff event was written, so that it is written once."""

    @property
    def running(self) -> bool:
        return self.run is not None and self.run.ended is None

    @property
    def alive(self) -> bool:
        """True while a process exists or is about to."""
        return self.starting or self.running

    @property
    def past(self) -> Run | None:
        """The last run, if it has ended."""
        return self.run if self.run is not None and self.run.ended is not None else None

    def has_started(self, container: Container) -> bool:
        """Running, and past its startup probe if it has one."""
        return self.running and self._verdict(container.startup_probe, Check.STARTUP)

    def is_ready(self, container: Container) -> bool:
        """Started, and its readiness probe, if it has one, passed last."""
        return self.has_started(container) and self._verdict(container.readiness_probe, Check.READINESS)

    def _verdict(self, probe: Mapping[str, Any] | None, check: Check) -> bool:
        if probe is None:
            return True
        checked = self.checks.get(check)
        return checked is not None and checked.passed is True


@dataclass(frozen=True)
class Doom:
    """Why the whole pod was ended by the kubelet."""

    reason: str
    message: str


@dataclass(frozen=True)
class PodRecord:
    """One pod."""

    ip: str
    since: datetime
    containers: Mapping[str, ContainerRecord]
    doom: Doom | None = None
    stop_by: datetime | None = None
    """When a terminating pod is killed."""
    conditions: tuple[PodCondition, ...] = ()
    """As last written, for their transition times."""

    def __getitem__(self, name: str) -> ContainerRecord:
        return self.containers[name]

    def put(self, name: str, container: ContainerRecord) -> PodRecord:
        return replace(self, containers={**self.containers, name: container})

    def change(self, name: str, **fields: Any) -> PodRecord:
        return self.put(name, replace(self.containers[name], **fields))


def every_container(pod: Pod) -> list[Container]:
    """Init containers, then the others."""
    return [*pod.spec.init_containers, *pod.spec.containers]


def admit(pod: Pod, ip: str, now: datetime) -> PodRecord:
    """The record of a pod that this kubelet sees for the first time.

    Containers that an earlier kubelet left running are gone with it: they count as ended.
    """
    seen = {
        status.name: status
        for status in [*pod.status.init_container_statuses, *pod.status.container_statuses]
    }
    records: dict[str, ContainerRecord] = {}
    for container in every_container(pod):
        record = ContainerRecord(resources=container.resources)
        if (status := seen.get(container.name)) is not None:
            record = replace(record, restarts=status.restart_count)
            if status.state.terminated is not None:
                end = status.state.terminated
                ended = Run(
                    end.container_id, end.started_at or now, end.finished_at or now, end.exit_code, end.reason
                )
                record = replace(record, run=replace(ended, message=end.message))
            elif status.state.running is not None:
                lost = "The container could not be located: the kubelet was restarted"
                began = status.state.running.started_at or now
                run = Run(status.container_id, began, now, 137, "ContainerStatusUnknown", lost)
                record = replace(record, run=run)
        records[container.name] = record
    doom = (
        Doom(pod.status.reason, pod.status.message)
        if pod.status.phase == "Failed" and pod.status.reason
        else None
    )
    return PodRecord(ip, pod.status.start_time or now, records, doom, conditions=tuple(pod.status.conditions))


def on_start(record: PodRecord, name: str, id: str, now: datetime) -> PodRecord:
    """The container's process runs."""
    container = record[name]
    again = container.run is not None
    return record.put(
        name,
        replace(
            container,
            run=Run(id, now),
            previous=container.run if again else None,
            restarts=container.restarts + again,
            starting=False,
            refusal=None,
            checks={},
        ),
    )


def on_refusal(
    record: PodRecord, name: str, reason: str, message: str, now: datetime, retry: datetime
) -> PodRecord:
    """The container could not be started, and no process came of it: it will be tried again."""
    earlier = record[name].refusal
    same = earlier is not None and (earlier.reason, earlier.message) == (reason, message)
    refusal = Refusal(
        reason, message, now, retry, earlier.attempts + 1 if earlier is not None and same else 1
    )
    return record.change(name, starting=False, refusal=refusal)


def failed_to_start(record: PodRecord, name: str, id: str, message: str, now: datetime) -> PodRecord:
    """The program could not be executed: a run that ended at once with 128, as runtimes report it."""
    return on_end(on_start(record, name, id, now), name, id, 128, "StartError", message, now)


def on_end(
    record: PodRecord, name: str, id: str, code: int, reason: str, message: str, now: datetime
) -> PodRecord:
    """The run `id` of the container ended; a run that is not the present one changes nothing."""
    container = record[name]
    if container.run is None or container.run.id != id:
        return record
    run = replace(container.run, ended=now, code=code, reason=reason, message=message)
    return record.put(name, replace(container, run=run, stopping=None, checks={}))


def on_probe(
    record: PodRecord, name: str, id: str, check: Check, judge: Callable[[ProbeState], ProbeState]
) -> PodRecord:
    """A probe of the run `id` has answered; `judge` updates the verdict."""
    container = record[name]
    if container.run is None or container.run.id != id or check not in container.checks:
        return record
    return record.change(name, checks={**container.checks, check: judge(container.checks[check])})

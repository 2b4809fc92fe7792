"""The kubelet's next actions for one pod: `(pod, record, now) → Step`, pure.

The passes run in the order of `PASSES`; each looks at the record that the one before it left, and adds
actions. A Step says what to do, what to remember, and when to look again if nothing happens before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

from elasticjob.devcluster.node.images import IMAGES, Image, find
from elasticjob.devcluster.node.pod.life import (
    Backoff,
    has_done_its_part,
    is_ending,
    is_sidecar,
    is_terminating,
    ran_long,
    restart_at,
    wants_restart,
)
from elasticjob.devcluster.node.pod.probes import first, probe_of
from elasticjob.devcluster.node.pod.record import (
    Check,
    ContainerRecord,
    Doom,
    PodRecord,
    Refusal,
    Stopping,
    every_container,
)
from elasticjob.devcluster.quantity import Quantities, parse_all
from elasticjob.kube.objects.views import Container, EventType, Pod, Resources


@dataclass(frozen=True)
class Rules:
    """How a node treats its pods."""

    images: Mapping[str, Image] = field(default_factory=lambda: IMAGES)
    restart: Backoff = field(default_factory=Backoff)
    pull: Backoff = field(default_factory=Backoff)
    capacity: Quantities = field(default_factory=dict)
    """What one pod may ask for at most in a resize; a resource that is absent here is not limited."""


@dataclass(frozen=True)
class Start:
    container: str


@dataclass(frozen=True)
class Stop:
    """Run the preStop hook, then SIGTERM."""

    container: str


@dataclass(frozen=True)
class Kill:
    """SIGKILL to all processes of the container."""

    container: str


@dataclass(frozen=True)
class Probe:
    container: str
    run: str
    check: Check


@dataclass(frozen=True)
class Resize:
    """Give the running container the resources that its spec has now."""

    container: str


@dataclass(frozen=True)
class Tell:
    """Write an Event about the pod."""

    type: EventType
    reason: str
    note: str


@dataclass(frozen=True)
class Remove:
    """All containers have ended: delete the object for good."""


Action = Start | Stop | Kill | Probe | Resize | Tell | Remove


@dataclass(frozen=True)
class Step:
    """The new record, the actions, and the latest time of the next pass."""

    record: PodRecord
    actions: tuple[Action, ...] = ()
    again: datetime | None = None


def decide(pod: Pod, record: PodRecord, now: datetime, rules: Rules) -> Step:
    """The next step in the life of `pod`."""
    draft = _Draft(pod, record, now, rules)
    for work in PASSES:
        work(draft)
    return Step(draft.record, tuple(draft.actions), min(draft.wakes, default=None))


class _Draft:
    """The step while it is being made."""

    def __init__(self, pod: Pod, record: PodRecord, now: datetime, rules: Rules) -> None:
        self.pod, self.record, self.now, self.rules = pod, record, now, rules
        self.actions: list[Action] = []
        self.wakes: list[datetime] = []

    def due(self, at: datetime) -> bool:
        """True when that moment has come; else the step wakes the kubelet then."""
        if self.now >= at:
            return True
        self.wakes.append(at)
        return False

    def grace(self) -> timedelta:
        seconds = self.pod.spec.termination_grace_period_seconds
        if is_terminating(self.pod) and self.pod.metadata.deletion_grace_period_seconds is not None:
            seconds = self.pod.metadata.deletion_grace_period_seconds
        return timedelta(seconds=seconds)


def note_the_end_of_grace(draft: _Draft) -> None:
    """A later delete may shorten the grace, never lengthen it."""
    if is_terminating(draft.pod):
        stop_by = draft.now + draft.grace()
        earlier = draft.record.stop_by
        draft.record = replace(draft.record, stop_by=min(stop_by, earlier) if earlier else stop_by)


def enforce_the_active_deadline(draft: _Draft) -> None:
    seconds = draft.pod.spec.active_deadline_seconds
    if seconds is None or is_ending(draft.pod, draft.record):
        return
    if draft.due(draft.record.since + timedelta(seconds=seconds)):
        doom = Doom("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        draft.record = replace(draft.record, doom=doom)
        draft.actions.append(Tell("Warning", doom.reason, doom.message))


def stop_what_must_end(draft: _Draft) -> None:
    """Main and init containers at once; sidecars after them, the last one first."""
    if not is_ending(draft.pod, draft.record):
        return
    plain = [c for c in every_container(draft.pod) if c not in _sidecars(draft.pod)]
    running = [container for container in plain if draft.record[container.name].alive]
    last = [c for c in reversed(_sidecars(draft.pod)) if draft.record[c.name].alive][:1]
    for container in running or last:
        _stop(
            draft,
            container,
            draft.record.stop_by or draft.now + draft.grace(),
            f"Stopping container {container.name}",
        )


def restart_the_unhealthy(draft: _Draft) -> None:
    for container, own in _running(draft):
        for check in (Check.STARTUP, Check.LIVENESS):
            probe, checked = probe_of(container, check), own.checks.get(check)
            if probe is None or checked is None or checked.passed is not False:
                continue
            seconds = probe.termination_grace_period_seconds
            grace = draft.grace() if seconds is None else timedelta(seconds=seconds)
            note = f"Container {container.name} failed {check} probe, will be restarted"
            _stop(draft, container, draft.now + grace, note)


def start_what_is_wanted(draft: _Draft) -> None:
    """Init containers one after the other, then all others."""
    if is_ending(draft.pod, draft.record):
        return
    for container in draft.pod.spec.init_containers:
        _start(draft, container)
        if not has_done_its_part(container, draft.record):
            return
    for container in draft.pod.spec.containers:
        _start(draft, container)


def resize_in_place(draft: _Draft) -> None:
    """Give running containers the resources that the spec has now; see `Rules.capacity`."""
    for container, own in _running(draft):
        if own.stopping or container.resources == own.resources:
            continue
        if own.resize is not None and not draft.due(own.resize.retry):
            continue
        if excess := _beyond_capacity(draft, container.resources):
            draft.record = draft.record.change(container.name, resize=_infeasible(draft, excess))
        elif _needs_restart(container, own):
            _stop(
                draft,
                container,
                draft.now + draft.grace(),
                f"Container {container.name} resize requires a restart",
            )
        else:
            draft.actions.append(Resize(container.name))


def probe_what_is_due(draft: _Draft) -> None:
    for container, own in _running(draft):
        if own.stopping or own.run is None:
            continue
        for check in Check:
            probe = probe_of(container, check)
            if probe is None or not _may_probe(container, own, check):
                continue
            checked = own.checks.get(check) or first(probe, own.run.started)
            if not checked.busy and draft.due(checked.due):
                checked = replace(checked, busy=True)
                draft.actions.append(Probe(container.name, own.run.id, check))
            own = replace(own, checks={**own.checks, check: checked})
        draft.record = draft.record.put(container.name, own)


def kill_what_overstays(draft: _Draft) -> None:
    for container, own in _running(draft):
        if own.stopping is not None and not own.stopping.killed and draft.due(own.stopping.deadline):
            draft.record = draft.record.change(container.name, stopping=replace(own.stopping, killed=True))
            draft.actions.append(Kill(container.name))


def remove_what_is_gone(draft: _Draft) -> None:
    if is_terminating(draft.pod) and not any(own.alive for own in draft.record.containers.values()):
        draft.actions.append(Remove())


PASSES: tuple[Callable[[_Draft], None], ...] = (
    note_the_end_of_grace,
    enforce_the_active_deadline,
    stop_what_must_end,
    restart_the_unhealthy,
    start_what_is_wanted,
    resize_in_place,
    probe_what_is_due,
    kill_what_overstays,
    remove_what_is_gone,
)


def _sidecars(pod: Pod) -> list[Container]:
    return [container for container in pod.spec.init_containers if is_sidecar(container)]


def _running(draft: _Draft) -> Iterator[tuple[Container, ContainerRecord]]:
    for container in every_container(draft.pod):
        own = draft.record[container.name]
        if own.running:
            yield container, own


def _stop(draft: _Draft, container: Container, deadline: datetime, note: str) -> None:
    """Begin to stop a running container, or shorten its time."""
    own = draft.record[container.name]
    if not own.running:
        return
    if own.stopping is None:
        draft.actions += [Tell("Normal", "Killing", note), Stop(container.name)]
        stopping = Stopping(deadline)
    else:
        stopping = replace(own.stopping, deadline=min(own.stopping.deadline, deadline))
    draft.record = draft.record.change(container.name, stopping=stopping)


def _start(draft: _Draft, container: Container) -> None:
    own = draft.record[container.name]
    if own.alive or (own.past is not None and not wants_restart(draft.pod, container, own)):
        return
    if not _may_start(draft, container, own):
        return
    forgiven = own.restarts if ran_long(own, draft.rules.restart) else own.forgiven
    draft.record = draft.record.change(
        container.name, starting=True, resources=container.resources, resize=None, forgiven=forgiven
    )
    draft.actions.append(Start(container.name))


def _may_start(draft: _Draft, container: Container, own: ContainerRecord) -> bool:
    restart = restart_at(own, draft.rules.restart)
    if restart is not None and not draft.due(restart):
        _tell_backoff(draft, container, own)
        return False
    if find(container.image, draft.rules.images) is None:
        _refuse_image(draft, container, own)
        return False
    pulled = own.refusal is not None and own.refusal.reason == ERR_IMAGE_PULL  # another image by now
    return own.refusal is None or pulled or draft.due(own.refusal.retry)


def _tell_backoff(draft: _Draft, container: Container, own: ContainerRecord) -> None:
    if own.run is None or own.reported_run == own.run.id:
        return
    name = f"{container.name} in pod {draft.pod.metadata.name}_{draft.pod.metadata.namespace}"
    note = f"Back-off restarting failed container {name}({draft.pod.metadata.uid})"
    draft.actions.append(Tell("Warning", "BackOff", note))
    draft.record = draft.record.change(container.name, reported_run=own.run.id)


ERR_IMAGE_PULL = "ErrImagePull"
SHOWN_AS_ERROR = timedelta(seconds=1)
"""How long a failed pull shows as ErrImagePull before it shows as ImagePullBackOff."""


def _refuse_image(draft: _Draft, container: Container, own: ContainerRecord) -> None:
    attempts = own.refusal.attempts if own.refusal is not None else 0
    if own.refusal is None or draft.now >= own.refusal.retry:
        known = ", ".join(draft.rules.images)
        why = f'no image "{container.image}" on this cluster: it runs programs of this machine, for {known}'
        retry = draft.now + draft.rules.pull.after(attempts + 1)
        refusal = Refusal(ERR_IMAGE_PULL, why, draft.now, retry, attempts + 1)
        draft.record = draft.record.change(container.name, refusal=refusal)
        draft.actions += [
            Tell("Warning", "Failed", f'Failed to pull image "{container.image}": {why}'),
            Tell("Warning", "Failed", f"Error: {ERR_IMAGE_PULL}"),
            Tell("Normal", "BackOff", f'Back-off pulling image "{container.image}"'),
        ]
    else:
        refusal = own.refusal
    draft.due(refusal.retry)
    draft.due(refusal.since + SHOWN_AS_ERROR)


def _beyond_capacity(draft: _Draft, resources: Resources) -> str:
    """The sentence why the node can never give that much, or ""."""
    for name, wanted in parse_all(resources.requests).items():
        limit = draft.rules.capacity.get(name)
        if limit is not None and wanted > limit:
            much = f"requested: {_plain(wanted)}, capacity: {_plain(limit)}"
            return f"Node didn't have enough capacity: {name}, {much}"
    return ""


def _plain(number: Fraction) -> str:
    return f"{float(number):g}" if number.denominator > 1 else str(number)


def _infeasible(draft: _Draft, why: str) -> Refusal:
    return Refusal("Infeasible", why, draft.now, draft.now + timedelta(seconds=30))


def _needs_restart(container: Container, own: ContainerRecord) -> bool:
    """Did a resource change whose resize policy is RestartContainer?"""
    strict = {
        policy.get("resourceName")
        for policy in container.resize_policy
        if policy.get("restartPolicy") == "RestartContainer"
    }
    now, new = own.resources, container.resources
    return any(
        now.limits.get(name) != new.limits.get(name) or now.requests.get(name) != new.requests.get(name)
        for name in strict
        if isinstance(name, str)
    )


def _may_probe(container: Container, own: ContainerRecord, check: Check) -> bool:
    """The startup probe until it passes; the others from then on."""
    waits = container.startup_probe is not None and not own.has_started(container)
    return waits if check is Check.STARTUP else not waits

"""Predicates on a container's life cycle, shared by decisions and status. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticjob.devcluster.node.pod.record import ContainerRecord, PodRecord
from elasticjob.kube.objects.views import Container, Pod


@dataclass(frozen=True)
class Backoff:
    """`first`, then twice as long each time, up to `longest`."""

    first: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(minutes=5)

    def after(self, attempts: int) -> timedelta:
        """The wait after that many failures; none after the zeroth."""
        return min(self.first * 2 ** min(attempts - 1, 30), self.longest) if attempts else timedelta()


def is_sidecar(container: Container) -> bool:
    """Is this init container a sidecar, which keeps running beside the others?"""
    return container.restart_policy == "Always"


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def wants_restart(pod: Pod, container: Container, record: ContainerRecord) -> bool:
    """Would the restart policy start the ended container again?"""
    policy = container.restart_policy or pod.spec.restart_policy
    if container in pod.spec.init_containers and not is_sidecar(container):
        policy = "Never" if policy == "Never" else "OnFailure"
    failed = record.past is not None and record.past.code != 0
    return policy == "Always" or (policy == "OnFailure" and failed)


def is_over(pod: Pod, container: Container, record: PodRecord) -> bool:
    """Has the container ended for good?"""
    own = record[container.name]
    if own.past is None or own.starting:
        return False
    return is_terminating(pod) or record.doom is not None or not wants_restart(pod, container, own)


def failed_init(pod: Pod, record: PodRecord) -> Container | None:
    """The init container that failed for good, and so the pod with it."""
    for container in pod.spec.init_containers:
        past = record[container.name].past
        if past is not None and past.code and not is_sidecar(container) and is_over(pod, container, record):
            return container
    return None


def is_settled(pod: Pod, record: PodRecord) -> bool:
    """Is the pod's work done, well or badly? Sidecars may still run."""
    if failed_init(pod, record) is not None:
        return True
    return all(is_over(pod, container, record) for container in pod.spec.containers)


def is_ending(pod: Pod, record: PodRecord) -> bool:
    """Must whatever runs come to an end?"""
    return is_terminating(pod) or record.doom is not None or is_settled(pod, record)


def is_initialized(pod: Pod, record: PodRecord) -> bool:
    """Have all init containers completed or, if sidecars, started?"""
    return all(has_done_its_part(container, record) for container in pod.spec.init_containers)


def has_done_its_part(container: Container, record: PodRecord) -> bool:
    """Has this init container completed or, if a sidecar, started?"""
    own = record[container.name]
    if is_sidecar(container):
        return own.has_started(container)
    return own.past is not None and own.past.code == 0


def restart_at(record: ContainerRecord, backoff: Backoff) -> datetime | None:
    """When an ended container may start again; None for one that has not ended."""
    past = record.past
    return None if past is None or past.ended is None else past.ended + pause(record, backoff)


def pause(record: ContainerRecord, backoff: Backoff) -> timedelta:
    """The back-off before the next start: zero for the first restart and after a long run."""
    return timedelta() if ran_long(record, backoff) else backoff.after(record.restarts - record.forgiven)


def ran_long(record: ContainerRecord, backoff: Backoff) -> bool:
    """Did the last run last long enough to reset the back-off?"""
    past = record.past
    return past is not None and past.ended is not None and past.ended - past.started >= 2 * backoff.longest

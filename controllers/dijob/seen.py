"""What a pass over a DIJob sees: the job, and the pods and services that it controls, by its uid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.names import CONTAINER, Role
from elasticjob.controllers.kueue.admission import Admission
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.parts.owners import controller_name, is_part
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import ContainerStatus, Pod, Service

CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True)
class Caches:
    """What is watched."""

    jobs: Cache[DIJob]
    pods: Cache[Pod]
    services: Cache[Service]


@dataclass(frozen=True)
class Seen:
    """A job, all its pods, and all its services."""

    job: DIJob
    pods: tuple[Pod, ...]
    services: tuple[Service, ...]
    grant: Grant | None = None  # what its queue gives to the job; None: it is in no queue
    taken_back: frozenset[str] = frozenset()  # names of Workloads whose pods are to leave
    lost_token: bool = False  # whether the Secret with the job's token is gone, when that is looked up

    @property
    def may_run(self) -> bool:
        """Whether pods of the job may run."""
        return self.grant is None or self.grant.admitted

    @property
    def present(self) -> tuple[Pod, ...]:
        """The pods that are not being deleted."""
        return tuple(pod for pod in self.pods if pod.metadata.deletion_timestamp is None)

    def of(self, role: Role) -> list[Pod]:
        """Return the pods of a role that are not being deleted."""
        return [pod for pod in self.present if pods.role_of(pod) is role]


def observe(caches: Caches, key: Key, admission: Admission | None = None) -> Seen | None:
    """Return what is known of a job; None for one that is gone."""
    job = caches.jobs.get(key)
    if job is None:
        return None
    uid = job.metadata.uid
    found = (pod for pod in caches.pods.owned_by(uid) if is_part(pod.metadata, job))
    services = (each for each in caches.services.owned_by(uid) if is_part(each.metadata, job))
    grant = admission.grant(job) if admission else None
    taken_back = admission.taken_back(job) if admission else frozenset()
    return Seen(job, tuple(sorted(found, key=_age)), tuple(services), grant, taken_back)


def main_status(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container di-container, or else of the one called like the role."""
    wanted = (CONTAINER, pod.metadata.labels.get(names.LABEL_ROLE, ""))
    found = {status.name: status for status in pod.status.container_statuses if status.name in wanted}
    return next((found[name] for name in wanted if name in found), None)


def outcome(pod: Pod) -> str:
    """Return how a pod counts: active, succeeded, failed, or "" while it is pending.

    The end of its main container counts as the end of a pod whose other containers still run.
    """
    match pod.status.phase:
        case "Succeeded":
            return "succeeded"
        case "Failed":
            return "failed"
        case "Running":
            status = main_status(pod)
            ended = status.state.terminated if status else None
            if ended is None:
                return "active"
            return "failed" if ended.exit_code else "succeeded"
        case _:
            return ""


def stays_for_its_logs(pod: Pod) -> bool:
    """Whether the policy Running keeps a pod: a container of it has ended, or crashes again and again."""
    if pod.status.phase not in ("Running", "Pending"):
        return True
    states = [status.state for status in pod.status.container_statuses]
    return any(
        state.terminated is not None or (state.waiting is not None and state.waiting.reason == CRASH_LOOP)
        for state in states
    )


def keys_of(made: Pod | Service) -> Iterable[Key]:
    """Return the job that controls an object, or else that its label names: anybody may edit labels."""
    about = made.metadata
    job = controller_name(about, DIJOB) or about.labels.get(names.LABEL_JOB, "")
    return [Key(about.namespace, job)] if job else []


def _age(pod: Pod) -> tuple[str, str]:
    at = pod.metadata.creation_timestamp
    return (at.isoformat() if at else "", pod.metadata.name)

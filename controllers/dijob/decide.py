"""What is written for a DIJob: an ordered tuple of rules, each a part of what is wrong now. Pure.

The controller makes the coordinator, the services of all pods, and cleans up; di-server makes all other pods,
when the coordinator asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.checks import problems
from elasticjob.api.diengine.dijob import CleanPodPolicy, DIJob, DIJobPhase
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import Server
from elasticjob.api.v1alpha1.kueue import WORKLOAD_OF
from elasticjob.controllers.dijob.seen import Seen, stays_for_its_logs
from elasticjob.controllers.dijob.status import Step, step
from elasticjob.controllers.kueue.kinds.dijob import is_gated, is_leaving, life_of, open_gate, role_of
from elasticjob.controllers.parts.owners import controlled_by
from elasticjob.controllers.passes.plan import (
    AS_SPECIFIED,
    REFUSED,
    Action,
    Create,
    Delete,
    Note,
    Patch,
    Plan,
    group,
)
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.views import POD, SECRET, SERVICE, Pod

Rule = Callable[[Seen, "Terms"], Iterator[Action]]

CREATED, DELETED, NOT_CREATED = "SuccessfulCreate", "SuccessfulDelete", "FailedCreate"
REASONS: Final = {Create: CREATED, Delete: DELETED, Patch: "QuotaAdmitted"}


@dataclass(frozen=True)
class Terms:
    """How jobs are run: what pods are told of di-server, the token of a job, and whether pods end in peace.

    `token` is "" for an installation without tokens.
    """

    server: Server
    token: str = ""
    graceful: bool = False


def decide(seen: Seen, terms: Terms) -> Plan:
    """Return the writes that bring a job closer to its spec."""
    job = seen.job
    if job.metadata.deletion_timestamp is not None:
        return AS_SPECIFIED
    if wrong := problems(job):  # of a cluster without the webhook
        return Plan(REFUSED, "; ".join(map(str, wrong)), quiet=True)
    entered = step(seen)
    actions = tuple(chain.from_iterable(rule(seen, terms) for rule in _rules(job.status.phase, entered)))
    notes = [Note(REASONS[type(each)], _say(each)) for each in actions]
    if entered is not None and entered.phase is not DIJobPhase.RUNNING:
        failed = entered.phase is DIJobPhase.FAILED
        notes.append(Note(entered.reason, entered.sentence, warning=failed))
    return Plan(entered.reason if entered else "AsSpecified", groups=group(actions), details=tuple(notes))


def _rules(phase: DIJobPhase | None, entered: Step | None) -> tuple[Rule, ...]:
    """The rules of a phase. The end is written into the status first: clean-up takes its proof away."""
    if phase is not None and phase.is_terminal:
        return AFTER
    return () if entered is not None and entered.phase.is_terminal else BEFORE


def make_the_token(seen: Seen, terms: Terms) -> Iterator[Action]:
    """Pods need the Secret that their variables name; one that others have deleted is made again."""
    if terms.token and seen.may_run and (seen.lost_token or not seen.of(Role.COORDINATOR)):
        yield token_secret(seen.job, terms.token)


def token_secret(job: DIJob, token: str) -> Create:
    """Return the Secret with the token of a job."""
    about = {
        "name": names.token(job.metadata.name),
        "namespace": job.metadata.namespace,
        "ownerReferences": [controlled_by(job)],
    }
    return Create(SECRET, {"metadata": about, "stringData": {"token": token}, "immutable": True})


def make_the_coordinator(seen: Seen, terms: Terms) -> Iterator[Action]:
    """A job has one coordinator, in the place that its queue gives it; one that vanished is made again."""
    if any(pods.role_of(pod) is Role.COORDINATOR for pod in seen.pods):
        return
    made = pods.coordinator(seen.job, terms.server)
    if seen.grant is None:
        yield Create(POD, made)
    elif place := seen.grant.free(map(life_of, seen.pods)).take(Role.COORDINATOR):
        yield Create(POD, place.fit(made))


def admit_pods(seen: Seen, terms: Terms) -> Iterator[Action]:
    """Pods that wait for quota go to the free places of their role; in no queue, they need none."""
    gated = [pod for pod in seen.present if is_gated(pod)]
    if not gated:
        return
    free = seen.grant.free(map(life_of, seen.pods)) if seen.grant else None
    for pod in gated:
        place = free.take(role_of(pod)) if free else None
        if place is not None or free is None:
            about = pod.metadata
            yield Patch(POD, about.name, about.uid, open_gate(pod, place), version=about.resource_version)


def delete_pods_without_quota(seen: Seen, terms: Terms) -> Iterator[Action]:
    """Where the job is not admitted, all pods leave; else those whose Workload is not there, or goes."""
    if seen.grant is None:
        return
    for pod in seen.present:
        outside = not is_gated(pod) and _workload_of(pod) not in seen.grant.workloads
        if not is_leaving(pod) and (outside or not seen.grant.admitted):
            yield _delete(POD, pod)


def make_missing_services(seen: Seen, terms: Terms) -> Iterator[Action]:  # rules look alike
    """Each pod has a Service of its name."""
    there = {service.metadata.name for service in seen.services}
    for pod in seen.present:
        if pod.metadata.name not in there:
            yield Create(SERVICE, pods.service(pod))


def delete_services_without_pod(seen: Seen, terms: Terms) -> Iterator[Action]:
    """A Service goes with its pod."""
    wanted = {pod.metadata.name for pod in seen.pods}
    yield from (_delete(SERVICE, each) for each in seen.services if each.metadata.name not in wanted)


def delete_learners_without_aggregator(seen: Seen, terms: Terms) -> Iterator[Action]:
    """The ddp learners of an aggregator that is gone keep their GPUs for nobody."""
    alive = {pod.metadata.uid for pod in seen.pods}
    for pod in seen.of(Role.DDP_LEARNER):
        aggregators = [owner.uid for owner in pod.metadata.owner_references if owner.kind == POD.name]
        if aggregators and alive.isdisjoint(aggregators):
            yield _delete(POD, pod, grace=_grace(terms))


def delete_all_services(seen: Seen, terms: Terms) -> Iterator[Action]:
    """Nobody is asked after the end."""
    yield from (_delete(SERVICE, each) for each in seen.services)


def delete_pods_by_policy(seen: Seen, terms: Terms) -> Iterator[Action]:
    """Running: those that still run or wait, but not those with logs to read; All; None."""
    match seen.job.spec.clean_pod_policy:
        case CleanPodPolicy.NONE:
            chosen: Sequence[Pod] = ()
        case CleanPodPolicy.ALL | CleanPodPolicy.ALL_IN_CAPITALS:
            chosen = seen.present
        case CleanPodPolicy.RUNNING:
            chosen = [pod for pod in seen.present if not stays_for_its_logs(pod)]
    yield from (_delete(POD, pod, grace=_grace(terms)) for pod in chosen)
    for pod in seen.present:  # one that outlives its job uses its quota, until that is taken back
        if _workload_of(pod) in seen.taken_back and pod not in chosen and not is_leaving(pod):
            yield _delete(POD, pod)


BEFORE: Final[tuple[Rule, ...]] = (
    make_the_token,
    make_the_coordinator,
    admit_pods,
    delete_pods_without_quota,
    make_missing_services,
    delete_services_without_pod,
    delete_learners_without_aggregator,
)
AFTER: Final[tuple[Rule, ...]] = (delete_all_services, delete_pods_by_policy)


def _workload_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(WORKLOAD_OF, "")


def _delete(kind: Kind[Any], thing: Any, grace: int | None = None) -> Delete:
    return Delete(kind, thing.metadata.name, thing.metadata.uid, grace=grace)


def _grace(terms: Terms) -> int | None:
    return None if terms.graceful else 0


def _say(action: Action) -> str:
    match action:
        case Create(kind, manifest):
            return f"Created {kind.name.lower()} {manifest['metadata']['name']}"
        case Delete(kind, name):
            return f"Deleted {kind.name.lower()} {name}"
        case Patch(kind, name):
            return f"Quota is there for {kind.name.lower()} {name}"
        case _:
            raise AssertionError(action)

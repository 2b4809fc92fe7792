"""A job with all that is known of it, and how people read that. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from elasticjob.api.escapes import as_line
from elasticjob.api.troubles.facts import when
from elasticjob.api.v1alpha1.common import LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, Finding, Training
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.kube.objects.views import Event, Pod


@dataclass(frozen=True)
class Description:
    """A job, its ScalePlans, pods and events; each oldest first. `str` is the text for people."""

    job: ElasticJob
    plans: Sequence[ScalePlan]
    pods: Sequence[Pod]
    events: Sequence[Event]

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """Everything in lines."""
        return "\n".join(map(as_line, _lines(self)))


def about_the_job(
    job: ElasticJob, plans: Iterable[ScalePlan], pods: Iterable[Pod], events: Iterable[Event]
) -> Description:
    """Return a job with what is its own of a namespace's plans, pods and events."""
    own = sorted((plan for plan in plans if plan.spec.owner_job == job.metadata.name), key=_born)
    mine = sorted(pods, key=lambda pod: pod.metadata.name)
    names = {job.metadata.name, *(plan.metadata.name for plan in own), *(pod.metadata.name for pod in mine)}
    roles = "|".join(map(re.escape, (*job.spec.roles, "master")))
    gone = re.compile(
        rf"{re.escape(job.metadata.name)}-({roles})-\d+(-\d+)?"
    )  # pods that are not there any more
    about = [
        event
        for event in events
        if event.involved_object.name in names or gone.fullmatch(event.involved_object.name)
    ]
    return Description(job, own, mine, sorted(about, key=when))


def _born(plan: ScalePlan) -> tuple[float, str]:
    at = plan.metadata.creation_timestamp
    return (at.timestamp() if at else 0.0, plan.metadata.name)


def _lines(all_: Description) -> Iterator[str]:
    job, status = all_.job, all_.job.status
    yield f"Name:       {job.metadata.name}"
    yield f"Namespace:  {job.metadata.namespace}"
    yield f"Phase:      {status.phase or 'new'}{f' ({status.reason})' if status.reason else ''}"
    yield f"Created:    {moment(job.metadata.creation_timestamp)}"
    if status.completion_time:
        yield f"Ended:      {moment(status.completion_time)}"
    yield f"Strategy:   {job.spec.distribution_strategy}, sizes by {job.spec.optimize_mode}"
    yield f"Restarts:   {status.restarts or 0}"
    yield from _training(job)
    yield from _section("Roles", _roles(job))
    yield from _section("Conditions", _conditions(job))
    yield from _section("ScalePlans", _plans(all_.plans))
    yield from _section("Pods", _pods(all_.pods))
    yield from _section(
        "Findings", (f"{moment(one.time)}  {one.reason}: {one.message}{one.times}" for one in _findings(job))
    )
    yield from _section("Events", (describe_event(event) for event in all_.events))


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _training(job: ElasticJob) -> Iterator[str]:
    training = job.status.training
    if training is None:
        return
    parts = [
        f"step {training.step}" if training.step is not None else "",
        f"{training.steps_per_second:.2f} steps/s" if training.steps_per_second else "",
        f"world {training.world_size}" if training.world_size else "",
        f"{training.progress:.0%} done" if training.progress is not None else "",
        f"goodput {training.goodput:.0%}" if training.goodput is not None else "",
        _checkpoint(training),
        f"ends about {moment(training.eta)}" if training.eta else "",
    ]
    yield f"Training:   {', '.join(filter(None, parts))}"


def _checkpoint(training: Training) -> str:
    if training.checkpoint_step is not None:
        return f"checkpoint of step {training.checkpoint_step}"
    if training.checkpoint_memory_step is not None:
        return f"checkpoint of step {training.checkpoint_memory_step} in memory"
    return "no checkpoint is known" if training.step else ""


def _roles(job: ElasticJob) -> Iterator[str]:
    for role, spec in job.spec.roles.items():
        have, range_ = job.status.replica_statuses.get(role), spec.bounds
        most = "any number" if range_.most is None else str(range_.most)
        bounds = str(range_.least) if most == str(range_.least) else f"{range_.least} to {most}"
        now = f"{have.active} of {have.desired} run" if have else "not counted yet"
        image = (spec.main_container or {}).get("image", "")
        yield f"{role}: {now}, {bounds} allowed{f', image {image}' if image else ''}"


def _conditions(job: ElasticJob) -> Iterator[str]:
    for one in job.status.conditions:
        why = ": ".join(filter(None, (one.reason, one.message)))
        yield f"{one.type:<12} {one.status:<7} {why}"


def _plans(plans: Iterable[ScalePlan]) -> Iterator[str]:
    for plan in plans:
        who = "by hand" if plan.manual else "by an optimizer"
        changes = "; ".join(plan.status.changes) or "no change yet"
        yield f"{plan.metadata.name}  {plan.status.phase or 'new'}, {who}: {changes}"
        if plan.spec.reason:
            yield f"    {plan.spec.reason}"


def _pods(pods: Iterable[Pod]) -> Iterator[str]:
    for pod in pods:
        node = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
        yield f"{pod.metadata.name}  {pod_state(pod)}{node}"


def pod_state(pod: Pod) -> str:
    """Return a pod's state in the words of kubectl get."""
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    for status in pod.status.container_statuses:
        if status.state.waiting and status.state.waiting.reason:
            return status.state.waiting.reason
        if status.state.terminated:
            ended = status.state.terminated
            return ended.reason or f"exit code {ended.exit_code}"
    return pod.status.reason or pod.status.phase or "Pending"


def role_of(pod: Pod) -> str:
    """Return the role of a pod."""
    return pod.metadata.labels.get(LABEL_ROLE, "")


def _findings(job: ElasticJob) -> Sequence[Finding]:
    return job.status.training.findings if job.status.training else ()


def describe_event(event: Event) -> str:
    """Return an event in one line."""
    times = f" (×{event.count})" if event.count > 1 else ""
    said = f"{event.involved_object.name}: {event.message}{times}"
    return f"{moment(event.latest)}  {event.type:<7} {event.reason}  {said}"


def moment(at: datetime | None) -> str:
    """Return a time as people read it."""
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "–"

"""Why a job has its size and its state, as far as the API server knows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elasticjob.api.escapes import as_line
from elasticjob.api.v1alpha1.elasticjob import FINISHED
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.client.described import Description, describe_event, moment, pod_state
from elasticjob.kube.objects.kstatus import Verdict
from elasticjob.kube.objects.views import Pod

FEW = 10
"""Events that are shown: the last ones."""
WELL = frozenset({"Running", "Completed", "Succeeded"})
"""States of pods that need no explanation."""


def reasons_in_lines(known: Description) -> list[str]:
    """Return the reasons in lines: the state, the sizes and who chose them, and what is wrong."""
    return [as_line(each) for each in (*_state(known), *_sizes(known), *_trouble(known))]


def _state(known: Description) -> Iterator[str]:
    status = known.job.status
    yield f"{known.job.key} is {status.phase or 'new'}{f' ({status.reason})' if status.reason else ''}"
    for one in status.conditions:
        held = one.reason == status.reason and one.type != Verdict.READY
        if one.message and (one.status == "True" or held):
            yield f"  {one.type}: {one.message}"


def _sizes(known: Description) -> Iterator[str]:
    roles = known.job.status.replica_statuses
    now = ", ".join(f"{role} {have.active} of {have.desired}" for role, have in roles.items())
    yield f"Sizes: {now or 'none yet'}"
    if not known.plans:
        yield "  as the ElasticJob says; nothing has changed them"
    for plan in known.plans:
        yield from _plan(plan)


def _plan(plan: ScalePlan) -> Iterator[str]:
    who = "by hand" if plan.manual else "by an optimizer"
    at, phase = moment(plan.metadata.creation_timestamp), plan.status.phase or "new"
    yield f"  {at}  {plan.metadata.name}, {who}: {phase}"
    yield from (f"      {change}" for change in plan.status.changes)
    if plan.spec.reason:
        yield f"      because {plan.spec.reason}"
    if plan.status.phase in ("Failed", "Superseded"):
        yield from (
            f"      {one.message}" for one in plan.status.conditions if one.status == "True" and one.message
        )


def _trouble(known: Description) -> Iterator[str]:
    training = known.job.status.training
    yield from _title(
        "Found by the master",
        (
            f"{one.reason}{one.times}{' (over)' if one.until else ''}: {one.message}"
            for one in (training.findings if training else ())
        ),
    )
    if training and training.badput_seconds:
        lost = sorted(training.badput_seconds.items(), key=lambda pair: -pair[1])
        yield from _title(
            "Seconds of workers that were lost", (f"{cause}: {seconds}" for cause, seconds in lost)
        )
    if known.job.status.phase not in FINISHED:
        yield from _title(
            "Pods that do not run", (_pod(pod) for pod in known.pods if pod_state(pod) not in WELL)
        )
    warnings = [describe_event(event) for event in known.events if event.type == "Warning"]
    yield from _title("Warnings", warnings[-FEW:])


def _pod(pod: Pod) -> str:
    why = next((one.message for one in pod.status.conditions if one.status == "False" and one.message), "")
    return f"{pod.metadata.name}: {pod_state(pod)}{f', {why}' if why else ''}"


def _title(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)

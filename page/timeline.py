"""What happened to a job, in one list: changes of its world, plans, decisions, findings and events. Pure.

The page draws those with a `label` above the curves, in the colour of their `mark`, as the report of the
demo does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Final

from elasticjob.api.v1alpha1.scaleplan import PlanPhase, ScalePlan
from elasticjob.kube.objects.views import Event
from elasticjob.page.seen import One
from elasticjob.page.status import Round
from elasticjob.page.words import View, between, cut, seconds_of

MOST: Final = 400
PAUSES: Final = ("Suspended", "Resumed", "Queued", "Preempted")


class Mark(StrEnum):
    """What an entry is for the job; decides its colour."""

    LIFE = "life"
    FAULT = "fault"
    SCALE = "scale"
    PAUSE = "pause"


def happened(seen: One) -> list[View]:
    """Return what happened, newest first. The operator repeats findings as events: each is told once."""
    status, past = seen.master.status, seen.past
    told = {event.message for event in seen.events}
    entries = chain(
        _worlds(status.rounds if status else (), f"{seen.name}-"),
        map(_plan, seen.plans),
        map(_decision, past.decisions if past else ()),
        (each for each in _findings(seen) if each["text"] not in told),
        map(_event, seen.events),
    )
    return sorted(entries, key=lambda each: each["at"] or 0.0, reverse=True)[:MOST]


def _entry(kind: str, at: float | None, title: str, text: str, mark: Mark = Mark.LIFE, **more: Any) -> View:
    return {"kind": kind, "at": at, "title": cut(title), "text": cut(text), "mark": mark.value, **more}


def _worlds(rounds: Sequence[Round], prefix: str) -> Iterator[View]:
    before = 0
    for each in rounds:
        mark = Mark.FAULT if each.lost else Mark.SCALE if before and each.workers != before else Mark.LIFE
        label = f"lost {_names(each.lost, prefix)}" if each.lost else f"{before} → {each.workers}"
        moves = (("lost", each.lost), ("joined", each.joined), ("left", each.left))
        yield _entry(
            "world",
            seconds_of(each.formed),
            f"{_many(each.workers, 'worker')} on {_many(each.nodes, 'node')}",
            each.reason,
            mark,
            label=label if before else "",
            seconds=each.standstill,
            tags=[f"{word} {_names(names, prefix)}" for word, names in moves if names],
        )
        before = each.workers


def _names(names: Sequence[str], prefix: str) -> str:
    shown = ", ".join(cut(name.removeprefix(prefix)) for name in names[:2])
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else shown


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _plan(plan: ScalePlan) -> View:
    status = plan.status
    phase, failed = status.phase or PlanPhase.PENDING, status.phase is PlanPhase.FAILED
    why = next((each.message for each in status.conditions if each.message), "") if failed else ""
    return _entry(
        "plan",
        seconds_of(plan.metadata.creation_timestamp),
        _asks(plan) or plan.metadata.name,
        "; ".join(filter(None, (plan.spec.reason, *status.changes[:8], why))),
        Mark.FAULT if failed else Mark.SCALE,
        phase=phase.value,
        seconds=between(status.start_time, status.finish_time),
        tags=["by a user" if plan.manual else "automatic"],
    )


def _asks(plan: ScalePlan) -> str:
    """Return the sizes that a plan asks for, in words."""
    spec = plan.spec
    roles = [
        " ".join(
            [role, *([f"×{each.replicas}"] if each.replicas is not None else []), *_words(each.resource)]
        )
        for role, each in {**(spec.replica_resource_spec or {}), **spec.replica_resource_specs}.items()
    ]
    nodes = [" ".join([each.name, *_words(each.resource)]) for each in spec.migrate_pods]
    pods = [f"+ {each.name}" for each in spec.create_pods] + [f"− {each.name}" for each in spec.remove_pods]
    return "; ".join([*roles, *nodes, *pods])


def _words(resource: Mapping[str, Any]) -> list[str]:
    return [f"{name} {amount}" for name, amount in resource.items()]


def _decision(found: Mapping[str, Any]) -> View:
    tags = [cut(found[name]) for name in ("event", "outcome", "plan") if found[name]]
    return _entry("decision", seconds_of(found["at"]), found["algorithm"], found["reason"], tags=tags)


def _findings(seen: One) -> Iterator[View]:
    """Yield the master's verdicts: its own words where it has some, else those in the job's status."""
    if status := seen.master.status:
        told = [(each.at, each.reason, each.message) for each in status.findings]
    else:
        training = seen.job.status.training if seen.job else None
        told = [(each.time, each.reason, each.message) for each in (training.findings if training else ())]
    for at, reason, message in told:
        yield _entry(
            "finding", seconds_of(at), reason, message, Mark.FAULT, label=cut(reason), tags=["Master"]
        )


def _event(event: Event) -> View:
    warning, about = event.type == "Warning", event.involved_object
    mark = Mark.FAULT if warning else Mark.PAUSE if event.reason in PAUSES else Mark.LIFE
    count = f" ×{event.count}" if event.count > 1 else ""
    label = cut(event.reason) if mark is not Mark.LIFE else ""
    tags = [cut(f"{about.kind} {about.name}{count}")]
    return _entry("event", last(event) or None, event.reason, event.message, mark, label=label, tags=tags)


def last(event: Event) -> float:
    """Return when an event happened last."""
    times = (event.last_timestamp, event.event_time, event.first_timestamp, event.metadata.creation_timestamp)
    return next((time.timestamp() for time in times if time), 0.0)

"""One stored Event, two served forms: core/v1 (stored) and events.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterator

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import key_problems, missing, wrong
from elasticjob.devcluster.server.model.registry import Conversion
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.model.strategy import immutable

# events.k8s.io/v1 → core/v1
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}


_TIMES = ("eventTime", "firstTimestamp", "lastTimestamp")
_TYPES = ("Normal", "Warning")
_LONGEST = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_FIXED = (
    *(
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
    ),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
_NAMED = {"reportingComponent": "reportingController"}


def default_event(event: Manifest) -> None:
    """Members that Go never leaves out."""
    for name in _TIMES:
        event.setdefault(name, None)
    event.setdefault("source", {})
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def check_event(event: Manifest) -> Iterator[Cause]:
    """Checks of core/v1 events: more of those with an eventTime, as newer clients write them."""
    yield from _problems(event, "reportingComponent")


def check_new_event(event: Manifest) -> Iterator[Cause]:
    """Additional checks of events.k8s.io/v1."""
    yield from _problems(event, "reportingController")
    yield from _series_problems(event)
    if not event.get("eventTime"):
        yield missing("eventTime")
    if event.get("type") not in _TYPES:
        yield wrong("type", "", f"has invalid value: {event.get('type') or ''}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(name):
            yield wrong(name, "", "needs to be unset")


def check_new_event_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    """Only the series of an events.k8s.io/v1 event may change."""
    yield from _problems(new, "reportingController")
    if new.get("series") != old.get("series"):
        yield from _series_problems(new)
    for name in _FIXED:
        yield from immutable(old.get(name), new.get(name), _NAMED.get(name, name))


def _problems(event: Manifest, reporter: str) -> Iterator[Cause]:
    """Required fields of all events; the reporter's field is named differently in each version."""
    namespace, place = (
        (event.get("involvedObject") or {}).get("namespace") or "",
        event["metadata"]["namespace"],
    )
    recent = bool(event.get("eventTime"))
    homes = ("default", "kube-system") if recent else ("default",)
    if (place not in homes) if not namespace else (namespace != place and not recent):
        yield wrong("involvedObject.namespace", namespace, "does not match event.namespace")
    if not recent:
        return
    yield from _name_problems(event.get("reportingComponent") or "", reporter)
    for name, longest in _LONGEST.items():
        value = event.get(name) or ""
        if not value and name != "message":
            yield missing(name)
        if len(value.encode()) > longest:
            yield wrong(name, "", f"can have at most {longest} characters")


def _name_problems(name: str, field: str) -> Iterator[Cause]:
    if not name:
        yield missing(field)
    yield from (wrong(field, name, problem) for problem in key_problems(name))


def _series_problems(event: Manifest) -> Iterator[Cause]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield wrong("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield missing("series.lastObservedTime")


def _newer(event: Manifest) -> Manifest:
    """As events.k8s.io/v1 shows it, which leaves empty texts out."""
    answer = _rename(event, _BACK, "events.k8s.io/v1")
    for name in ("reportingController", "reportingInstance"):
        if not answer.get(name):
            answer.pop(name, None)
    return answer


def _rename(event: Manifest, names: dict[str, str], api_version: str) -> Manifest:
    return {names.get(key, key): value for key, value in event.items()} | {"apiVersion": api_version}


EVENTS_V1 = Conversion(
    to_storage=lambda event: _rename(event, _NAMES, "v1"),
    from_storage=_newer,
)

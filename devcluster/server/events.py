"""One stored Event, two served forms: core/v1 (stored) and events.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterator

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import wrong
from elasticjob.devcluster.server.registry import Conversion
from elasticjob.devcluster.server.store import Manifest

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


def default_event(event: Manifest) -> None:
    """Members that Go never leaves out."""
    for name in _TIMES:
        event.setdefault(name, None)
    event.setdefault("source", {})
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def check_event(event: Manifest) -> Iterator[Cause]:
    namespace = (event.get("involvedObject") or {}).get("namespace")
    if namespace and namespace != event["metadata"].get("namespace"):
        yield wrong("involvedObject.namespace", namespace, "does not match event.namespace")


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

"""One stored Event, two served forms: core/v1 (stored) and events.k8s.io/v1."""

from __future__ import annotations

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


def _rename(event: Manifest, names: dict[str, str], api_version: str) -> Manifest:
    return {names.get(key, key): value for key, value in event.items()} | {"apiVersion": api_version}


EVENTS_V1 = Conversion(
    to_storage=lambda event: _rename(event, _NAMES, "v1"),
    from_storage=lambda event: _rename(event, _BACK, "events.k8s.io/v1"),
)

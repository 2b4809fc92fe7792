"""What doctor read of a broken job or cluster, as data: `make test` examines it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from elasticjob.api.troubles import cluster as of_cluster
from elasticjob.api.troubles import job as of_job
from elasticjob.api.troubles.facts import ClusterFacts, JobFacts, Trial
from elasticjob.api.troubles.trouble import Trouble
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import EVENT, LEASE, NODE, POD, VALIDATING_WEBHOOKS
from lab.paths import ROOT

T = TypeVar("T", JobFacts, ClusterFacts)

KEPT: Final = ROOT / "tests" / "api" / "troubles" / "facts"
"""A file for each story."""
LISTS: Final[dict[str, Kind[Any]]] = {
    "jobs": ELASTICJOB,
    "pods": POD,
    "plans": SCALEPLAN,
    "events": EVENT,
    "nodes": NODE,
    "leases": LEASE,
    "programs": POD,
    "webhooks": VALIDATING_WEBHOOKS,
}
"""Fields of facts that are lists of objects."""
SILENT: Final = frozenset(
    {
        *(
            "addresses",
            "annotations",
            "args",
            "blockOwnerDeletion",
            "capacity",
            "command",
            "containerID",
            "env",
        ),
        *("firstTimestamp", "hostIP", "hostname", "imageID", "imagePullPolicy", "ownerReferences", "podIP"),
        *("qosClass", "reportingComponent", "reportingInstance", "resourceVersion", "schedulerName", "uid"),
        *("securityContext", "selector", "serviceAccountName", "subdomain", "terminationMessagePath"),
        *("terminationMessagePolicy", "tolerations", "volumeMounts"),
    }
)
"""Fields of which no rule reads anything."""


def as_data(seen: JobFacts | ClusterFacts, now: datetime) -> Manifest:
    """Return facts, and when they were read, as data without what is empty."""
    found = {name: _plain(value) for name, value in vars(seen).items()}
    return {
        "now": now.isoformat(timespec="seconds"),
        **{name: value for name, value in found.items() if value},
    }


def examined(data: Manifest) -> tuple[Trouble, ...]:
    """Return the troubles in recorded facts."""
    now = datetime.fromisoformat(data["now"])
    given: dict[str, Any] = {name: value for name, value in data.items() if name != "now"}
    for name, kind in LISTS.items():
        given[name] = tuple(map(kind.convert, given.get(name, ())))
    if "job" in given:
        given["job"] = ELASTICJOB.convert(given["job"])
        return of_job.examine(_of(JobFacts, given), now)
    given["trial"] = Trial(**given["trial"]) if "trial" in given else None
    return of_cluster.examine(_of(ClusterFacts, given), now)


def _of(kind: type[T], given: dict[str, Any]) -> T:
    return kind(**{name: given[name] for name in kind.__dataclass_fields__ if name in given})


def _plain(value: Any) -> Any:
    if isinstance(value, ElasticJob):
        spec = value.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return _trimmed({"metadata": _plain(value.metadata), "spec": spec, "status": value.status.manifest()})
    if isinstance(value, str | None):
        return value
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    if hasattr(value, "manifest"):
        return value.manifest()
    if isinstance(value, Trial):
        return vars(value)
    return _trimmed(msgspec.to_builtins(value))


def _trimmed(value: Any) -> Any:
    """Return data without empty values, and without what says nothing of trouble."""
    if isinstance(value, dict):
        if value.get("type") == "Normal" or value.get("type", "").endswith("Pressure"):
            return {}
        inner = {key: _trimmed(each) for key, each in value.items() if key not in SILENT}
        return {key: each for key, each in inner.items() if each not in ("", None, [], {}, 0)}
    return list(filter(None, map(_trimmed, value))) if isinstance(value, list) else value

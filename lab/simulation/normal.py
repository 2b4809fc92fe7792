"""Objects without what differs from one run to another: what two runs must have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Manifest

METADATA: Final = ("name", "labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
"""What is compared of metadata; else it is numbers and times."""
LEFT_OUT: Final = frozenset({"events", "leases", "nodes", "workloads", "scaleplans"})
"""How many slices of quota and which plans a job has had depends on when it grew."""
UIDS: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
ADDRESSES: Final = re.compile(r"\b10\.\d+\.\d+\.\d+\b")
THEN: Final = ("NODE_NUM",)
"""Variables that say how many nodes there were when a pod was made."""
HISTORY: Final = frozenset(
    {
        "lastTransitionTime",
        "message",
        "observedGeneration",
        "clusterIP",
        "uid",
        "lastScalePlan",
        "elasticjob.dlrover/asked-at",
        "training",
        "elasticjob.dlrover/folded-changes",
        "elasticjob.dlrover/folded-plan",
        "elasticjob.dlrover/repeats",
        "elasticjob.dlrover/stands-in",
        "kueue.x-k8s.io/workload",
        "kueue.x-k8s.io/podset",
        "job.json",
    }
)
"""Fields of which the value depends on when something was seen, or in how many steps."""


def normal(objects: Mapping[str, list[Manifest]]) -> dict[str, Any]:
    """Return objects by resource and name, without uids, versions, times, and how they came to be."""
    return {
        f"{resource.partition('.')[0]}/{found['metadata']['name']}": _plain(found)
        for resource, every in sorted(objects.items())
        for found in every
        if resource.partition(".")[0] not in LEFT_OUT
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Say in which fields two normal states differ."""
    for name in sorted({*one, *other}):
        if name not in one or name not in other:
            yield f"{name} is there {'first' if name in one else 'second'} only"
        else:
            yield from unlike(name, one[name], other[name])


def unlike(path: str, one: Any, other: Any) -> Iterator[str]:
    """Say in which fields two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from unlike(f"{path}.{name}", one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from unlike(f"{path}[{number}]", first, second)
    elif one != other:
        yield f"{path} is {one!r}, and {other!r}"


def _plain(found: Manifest) -> Any:
    if found.get("kind") == SCALEPLAN.name:
        found = {name: value for name, value in found.items() if name != "status"}
    return _masked(without_numbers(found))


def without_numbers(found: Manifest | None) -> Manifest:
    """An object without its versions, its uid and the time when it was made; {} for none."""
    if found is None:
        return {}
    about = {name: value for name, value in found["metadata"].items() if name in METADATA}
    return {**found, "metadata": about}


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _masked(each) for name, each in value.items() if name not in HISTORY}
        if "conditions" in kept:
            kept["conditions"] = {
                each["type"]: each.get("reason") for each in value["conditions"] if each["status"] == "True"
            }
        return kept
    if isinstance(value, list):
        return [_masked(each) for each in value if not (isinstance(each, dict) and each.get("name") in THEN)]
    if isinstance(value, str):
        return ADDRESSES.sub("address", TIMES.sub("time", UIDS.sub("uid", value)))
    return value

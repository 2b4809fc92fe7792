"""Jobs, JobResources, plans and lives for tests, as short as they can be said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.sizing.exits import ExitReason, of_code

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


def at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def template(memory: str = "512Mi", **main: Any) -> Manifest:
    limits = {"resources": {"requests": {"cpu": "100m"}, "limits": {"memory": memory}}} if memory else {}
    container = {"name": "main", "image": "elasticjob/digits", "command": ["train"], **limits, **main}
    return {"spec": {"containers": [container]}}


def role(replicas: int | None = 2, **more: Any) -> Manifest:
    sizes = {} if replicas is None else {"replicas": replicas}
    return {"template": template(), **sizes, **more}


def job(
    roles: Mapping[str, Manifest] | None = None,
    *,
    generation: int = 1,
    status: Manifest | None = None,
    metadata: Manifest | None = None,
    **spec: Any,
) -> ElasticJob:
    manifest = {
        "apiVersion": ELASTICJOB.api_version,
        "kind": "ElasticJob",
        "metadata": {
            "name": "digits",
            "namespace": "ml",
            "uid": "job-1",
            "generation": generation,
            **(metadata or {}),
        },
        "spec": {"replicaSpecs": dict(roles or {"worker": role()}), **spec},
        "status": status or {},
    }
    return ELASTICJOB.convert(manifest)


def over(type_: str = "Complete", ended: datetime = LONG_AGO, **more: Any) -> Manifest:
    condition = {"type": type_, "status": "True", "reason": "Because", "message": "it is over"}
    return {"conditions": [condition], "completionTime": at(ended), **more}


def resource(
    sizes: Mapping[str, int] | None = None,
    *,
    asked: str = '{"worker": 2}',
    folded: str = "",
    owner: str = "job-1",
    resources: Mapping[str, Mapping[str, str]] | None = None,
    nodes: Mapping[str, Mapping[str, str]] | None = None,
    vacant: Mapping[str, list[int]] | None = None,
    status: Manifest | None = None,
    deleted: bool = False,
    generation: int = 1,
    suspend: bool = False,
    gang: str | None = None,
    made_from: str = "",
) -> JobResource:
    annotations = {names.ASKED: asked} | ({names.FOLDED: folded} if folded else {})
    annotations |= {} if gang is None else {names.GANG: gang}
    annotations |= {names.MADE_FROM: made_from} if made_from else {}
    reference = {"apiVersion": "v1", "kind": "ElasticJob", "name": "digits", "uid": owner, "controller": True}
    metadata: Manifest = {
        "name": "digits",
        "namespace": "ml",
        "uid": "res-1",
        "generation": generation,
        "annotations": annotations,
        "ownerReferences": [reference],
    }
    if deleted:
        metadata["deletionTimestamp"] = at(NOW)
    specs = {
        name: {
            "replicas": count,
            "resource": dict((resources or {}).get(name, {})),
            "vacant": (vacant or {}).get(name, []),
        }
        for name, count in (sizes if sizes is not None else {"worker": 2}).items()
    }
    spec = {
        "selector": {"name": "digits"},
        "suspend": suspend,
        "replicas": (sizes if sizes is not None else {"worker": 2}).get("worker"),
        "replicaResourceSpecs": specs,
        "nodes": [{"name": name, "resource": dict(amounts)} for name, amounts in (nodes or {}).items()],
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "JobResource",
        "metadata": metadata,
        "spec": spec,
        "status": status or {},
    }
    return JOBRESOURCE.convert(manifest)


def asking(found: JobResource, workers: int | None) -> JobResource:
    """Return a JobResource that an autoscaler asks for so many workers; None: one of an earlier release."""
    return found.model_copy(update={"spec": found.spec.model_copy(update={"replicas": workers})})


def plan(
    name: str = "up",
    sizes: Mapping[str, int] | None = None,
    *,
    memory: Mapping[str, str] | None = None,
    manual: bool = False,
    age: int = 60,
    phase: str = "",
    started: datetime | None = None,
    finished: datetime | None = None,
    owned: bool = True,
    reason: str = "",
    **spec: Any,
) -> ScalePlan:
    specs: dict[str, Manifest] = {r: {"replicas": n} for r, n in (sizes or {}).items()}
    for r, amount in (memory or {}).items():
        specs.setdefault(r, {})["resource"] = {"memory": amount}
    metadata: Manifest = {
        "name": name,
        "namespace": "ml",
        "uid": f"plan-{name}",
        "generation": 1,
        "creationTimestamp": at(NOW - timedelta(seconds=age)),
    }
    if owned:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "ElasticJob", "name": "digits", "uid": "job-1"}
        ]
    status = ({"phase": phase} if phase else {}) | ({"startTime": at(started)} if started else {})
    status |= {"finishTime": at(finished)} if finished else {}
    asked = {
        "ownerJob": "digits",
        "replicaResourceSpecs": specs,
        "manualScaling": manual,
        "reason": reason,
        **spec,
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "ScalePlan",
        "metadata": metadata,
        "spec": asked,
        "status": status,
    }
    return SCALEPLAN.convert(manifest)


def life(index: int = 0, relaunch: int = 0, *, role: str = "worker", **more: Any) -> Life:
    """A pod that runs and is ready unless `more` says otherwise."""
    name = names.pod("digits", role, index, relaunch)
    known = {"running": True, "ready": True, "machine": "m1", "resource": {"memory": "512Mi", "cpu": "100m"}}
    return Life(name, f"uid-{name}", role, index, relaunch, **{**known, **more})


def pending(index: int = 0, relaunch: int = 0, *, role: str = "worker", **more: Any) -> Life:
    return life(index, relaunch, role=role, **{"running": False, "ready": False, **more})


def ended(index: int = 0, relaunch: int = 0, code: int = 1, *, role: str = "worker", **more: Any) -> Life:
    """A pod that exited with `code` an hour ago, unless `more` says `end`, `at`, `words` or `lived`."""
    moment = more.pop("at", LONG_AGO)
    lived = more.pop("lived", timedelta(seconds=5))
    end = Exit(of_code(code), code, more.pop("words", ""), "512Mi", moment, moment - lived)
    return life(index, relaunch, role=role, **{"running": False, "ready": False, "ended": end, **more})


def oom(
    index: int = 0, relaunch: int = 0, memory: str = "512Mi", *, at: datetime = LONG_AGO, **more: Any
) -> Life:
    end = Exit(ExitReason.OOM_KILLED, 137, "", memory, at, at - timedelta(seconds=5))
    return life(index, relaunch, **{"running": False, "ready": False, "ended": end, **more})


def master(relaunch: int = 0, **more: Any) -> Life:
    return life(0, relaunch, role="master", **more)

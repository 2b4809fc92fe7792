"""Manifests that users write in a history: a function for each kind, whose arguments are a line's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.build import manifests
from lab.build.manifests import changed
from lab.virtual import cluster
from lab.virtual.cluster import TEAM

CORE: Final = {"requests": {"cpu": "1"}}


def job(
    name: str,
    *,
    workers: int = 2,
    least: int = 1,
    most: int = 4,
    unit: int = 1,
    strategy: str = "Local",
    mode: str = "manual",
    queue: str = "",
    env: Mapping[str, object] | None = None,
) -> Manifest:
    """Return an ElasticJob whose workers ask for a core each, with variables of their container.

    Without a number of workers, programs choose it.
    """
    local = strategy == "Local"
    made = cluster.job(name, queue, workers, least, most, unit=unit, master=not local, mode=mode)
    worker = made["spec"]["replicaSpecs"]["worker"]
    if not workers:
        del worker["replicas"]
    [main] = worker["template"]["spec"]["containers"]
    main |= {"env": [{"name": key, "value": str(value)} for key, value in env.items()]} if env else {}
    return made if local else changed(made, {"spec/distributionStrategy": strategy})


def plan(name: str, job: str, *, workers: int = 3, manual: bool = True) -> Manifest:
    """Return a ScalePlan of a user, or of a program."""
    worker = {"spec/replicaResourceSpecs/worker/replicas": workers}
    return _named(manifests.PLAN, name, {**worker, "spec/ownerJob": job, "spec/manualScaling": manual})


def training(name: str, *, least: int = 2, most: int = 4) -> Manifest:
    """Return a TrainingJob of PaddlePaddle whose trainers ask for a core each."""
    sizes = {"spec/trainer/min-instance": least, "spec/trainer/max-instance": most}
    return _named(manifests.TRAINING, name, {**sizes, "spec/trainer/resources": CORE})


def dijob(name: str, *, queue: str = "") -> Manifest:
    """Return a DIJob; its coordinator asks di-server for collectors later."""
    return cluster.dijob(name, queue)


def aggregators(name: str = "aggregator-config") -> Manifest:
    """Return the AggregatorConfig of the namespace of jobs."""
    return _named(manifests.AGGREGATORCONFIG, name, {})


def _named(manifest: Manifest, name: str, changes: Mapping[str, Any]) -> Manifest:
    place = {"metadata/name": name, "metadata/namespace": TEAM}
    made = changed(manifest, {**place, **changes})
    made["metadata"].pop("uid", None)
    return made


KINDS: Final[Mapping[str, tuple[Kind[Any], Callable[..., Manifest]]]] = {
    "job": (ELASTICJOB, job),
    "plan": (SCALEPLAN, plan),
    "training": (TRAININGJOB, training),
    "dijob": (DIJOB, dijob),
    "aggregators": (AGGREGATORCONFIG, aggregators),
}
"""By the word for a kind in a history."""

"""Objects for the benchmark `scale`: ElasticJobs of two shapes and, as peers, the same pods without us."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.clients.load import Manifest
from benchmarks.clients.plane import NAMESPACE
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.views import POD

PODS: Final = 4
"""Those of a job, with its master."""
WITH_MASTER, WITHOUT = "AllreduceStrategy", "Local"
JOB: Final = Kind("batch", "v1", "Job", "jobs", dict)
ADDRESS: Final = "10.96.0.10:50001"


@dataclass(frozen=True)
class Crowd:
    """Jobs of four pods each, of our operator or of a peer: what one of a name is made of, all of a kind."""

    name: str
    title: str
    kind: Kind[Manifest]
    made: Callable[[str], Iterable[Manifest]]
    ours: bool = True

    def creations(self, jobs: int) -> list[tuple[str, Manifest]]:
        """Return the paths and bodies of the requests that create so many jobs."""
        path = self.kind.path(NAMESPACE)
        return [(path, each) for number in range(jobs) for each in self.made(f"job-{number:04}")]


def elastic_job(name: str, strategy: str, workers: int) -> Manifest:
    """Return an ElasticJob."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/trainer:1",
        "command": ["elasticjob", "run", "train.py"],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    worker = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    return _manifest(ELASTICJOB, name, {"distributionStrategy": strategy, "replicaSpecs": {WORKER: worker}})


def batch_job(name: str) -> Manifest:
    """Return a Job of the same pods."""
    pod = bare_pod(name, 0)
    template = {
        "metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")},
        "spec": pod["spec"],
    }
    return _manifest(JOB, name, {"parallelism": PODS, "completions": PODS, "template": template})


def bare_pod(job: str, index: int) -> Manifest:
    """Return a pod as our operator makes it for a job with a master, but without an owner."""
    made = pod_manifest(
        ELASTICJOB.convert(elastic_job(job, WITH_MASTER, PODS - 1)),
        JOBRESOURCE.convert(_manifest(JOBRESOURCE, job, {"selector": {"name": job}})),
        Birth(WORKER, index),
        master=ADDRESS,
        nodes=PODS - 1,
    )
    del made["metadata"]["ownerReferences"]
    return made


def _manifest(kind: Kind[Any], name: str, spec: Manifest) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def _shape(name: str, strategy: str, workers: int) -> Crowd:
    title, kind = f"{strategy}, {PODS} pods each", ELASTICJOB.untyped()
    return Crowd(name, title, kind, lambda job: [elastic_job(job, strategy, workers)])


SHAPES: Final[Mapping[str, Crowd]] = {
    shape.name: shape for shape in (_shape("master", WITH_MASTER, PODS - 1), _shape("local", WITHOUT, PODS))
}
PEERS: Final = (
    Crowd("jobs", "batch/v1 Job", JOB, lambda job: [batch_job(job)], ours=False),
    Crowd(
        "pods",
        f"{PODS} bare pods",
        POD.untyped(),
        lambda job: map(partial(bare_pod, job), range(PODS)),
        ours=False,
    ),
)
"""The same pods created without the operator: the cost of the control plane itself."""

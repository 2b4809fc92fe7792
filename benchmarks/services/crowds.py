"""Objects for the benchmark `scale`: ElasticJobs of two shapes and, as peers, the same pods without us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.clients.load import Manifest
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.views import POD

NAMESPACE: Final = "bench"
JOB: Final = Kind("batch", "v1", "Job", "jobs", dict)
ADDRESS: Final = "10.96.0.10:50001"

Made = tuple[str, Manifest]
"""The path of a collection, and what is posted there."""


@dataclass(frozen=True)
class Shape:
    """A shape of ElasticJobs: number of workers, and of pods with the master."""

    name: str
    strategy: str
    workers: int
    pods: int

    @property
    def title(self) -> str:
        """The head of its table."""
        return f"{self.strategy}, {self.pods} pods each"

    def manifest(self, name: str, workers: int | None = None) -> Manifest:
        """Return a job of this shape."""
        container = {
            "name": "main",
            "image": "registry.example.com/team/trainer:1",
            "command": ["elasticjob", "run", "train.py"],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }
        worker = {"replicas": workers or self.workers, "template": {"spec": {"containers": [container]}}}
        return {
            "apiVersion": ELASTICJOB.api_version,
            "kind": ELASTICJOB.name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"distributionStrategy": self.strategy, "replicaSpecs": {WORKER: worker}},
        }

    def creations(self, jobs: int) -> list[Made]:
        """Return what so many jobs are made by."""
        return [(ELASTICJOB.path(NAMESPACE), self.manifest(name)) for name in job_names(jobs)]


SHAPES: Final[Mapping[str, Shape]] = {
    shape.name: shape for shape in (Shape("master", "AllreduceStrategy", 3, 4), Shape("local", "Local", 4, 4))
}


@dataclass(frozen=True)
class Peer:
    """The same pods created without the operator: the cost of the control plane itself."""

    name: str
    title: str
    pods: int

    def creations(self, jobs: int) -> list[Made]:
        """Return what they are made by: one Job for each of ours, or each pod by itself."""
        if self.name == "pods":
            return [
                (POD.path(NAMESPACE), worker(name, index))
                for name in job_names(jobs)
                for index in range(self.pods)
            ]
        return [(JOB.path(NAMESPACE), self._job(name)) for name in job_names(jobs)]

    def _job(self, name: str) -> Manifest:
        pod = worker(name, 0)
        kept = {key: pod["metadata"][key] for key in ("labels", "annotations")}
        spec = {"parallelism": self.pods, "completions": self.pods}
        return {
            "apiVersion": JOB.api_version,
            "kind": JOB.name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {**spec, "template": {"metadata": kept, "spec": pod["spec"]}},
        }


PEERS: Final = (Peer("jobs", "batch/v1 Job", 4), Peer("pods", "4 bare pods", 4))

Crowd = Shape | Peer


def job_names(jobs: int) -> list[str]:
    """Return the names of so many jobs."""
    return [f"job-{number:04}" for number in range(jobs)]


def worker(job: str, index: int) -> Manifest:
    """Return a pod as our operator makes it for a job with a master, but without an owner."""
    of = {"metadata": {"name": job, "namespace": NAMESPACE}, "spec": {"selector": {"name": job}}}
    made = pod_manifest(
        ELASTICJOB.convert(SHAPES["master"].manifest(job)),
        JOBRESOURCE.convert({"apiVersion": JOBRESOURCE.api_version, "kind": JOBRESOURCE.name, **of}),
        Birth(WORKER, index),
        master=ADDRESS,
        nodes=SHAPES["master"].workers,
    )
    del made["metadata"]["ownerReferences"]
    return made

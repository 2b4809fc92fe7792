"""JobSet and Kubeflow Trainer as released, beside a control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.clusters import binaries
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.guest import Guest, manifests

SET: Final = "peers-of-queue"
TRAINER: Final = "trainer.kubeflow.org"
JOBSET: Final = "jobset.x-k8s.io"
TRAIN_JOB: Final = Kind(TRAINER, "v1alpha1", "TrainJob", "trainjobs", dict)
RUNTIME: Final = Kind(
    TRAINER, "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", dict, namespaced=False
)
CONNECTION: Final = {"qps": 500, "burst": 500}
FRAMEWORKS: Final = (f"{TRAINER}/trainjob", f"{JOBSET}/jobset")
"""What Kueue is told to manage. A JobSet that a TrainJob owns is left to the TrainJob."""


def jobset(plane: ControlPlane, folder: Path) -> Guest:
    """JobSet's controller. Raises `binaries.Missing`."""
    found = binaries.require(SET)
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "internalCertManagement": {"enable": False},
        "clientConnection": CONNECTION,
    }
    return Guest(plane, folder, "jobset", found["jobset"], found["jobset-definitions"], {JOBSET}, settings)


def trainer(plane: ControlPlane, folder: Path) -> Guest:
    """Kubeflow Trainer's controller; its runtimes are `runtimes()`. Raises `binaries.Missing`."""
    found = binaries.require(SET)
    settings = {
        "apiVersion": f"config.{TRAINER}/v1alpha1",
        "certManagement": {"enable": False},
        "controller": {"groupKindConcurrency": {f"TrainJob.{TRAINER}": 5}},  # as released
        "clientConnection": CONNECTION,
        "featureGates": {"TrainJobStatus": False},
    }
    program, released = found["trainer-controller-manager"], found["trainer-definitions"]
    # controller-runtime's own folder of certificates, below the temporary folder
    place = {"certificates": "k8s-webhook-server/serving-certs", "TMPDIR": str(folder.absolute())}
    return Guest(plane, folder, "trainer", program, released, {TRAINER}, settings, **place)


def runtimes() -> list[Manifest]:
    """The runtimes that Kubeflow Trainer is released with."""
    known = manifests(binaries.require(SET)["trainer-definitions"])
    return [found for found in known if found["kind"] == RUNTIME.name]

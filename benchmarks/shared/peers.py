"""JobSet and Kubeflow Trainer as released, beside a control plane."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from elasticjob.cli.laptop.ports import free_port
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.clusters import binaries
from lab.clusters.plane.controlplane import MASTERS, ControlPlane
from lab.clusters.plane.guest import HOST, Guest, Recipe, as_secret, definitions, manifests, webhooks
from lab.clusters.plane.pki import write_private

SET: Final = "peers-of-queue"
TRAINER: Final = "trainer.kubeflow.org"
JOBSET: Final = "jobset.x-k8s.io"
TRAIN_JOB: Final = Kind(TRAINER, "v1alpha1", "TrainJob", "trainjobs", dict)
RUNTIME: Final = Kind(
    TRAINER, "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", dict, namespaced=False
)
FRAMEWORKS: Final = (f"{TRAINER}/trainjob", f"{JOBSET}/jobset")
"""What Kueue is told to manage. A JobSet that a TrainJob owns is left to the TrainJob."""


def jobset(plane: ControlPlane, folder: Path) -> Guest:
    """JobSet's controller. Raises `binaries.Missing`."""
    probes, port = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    certificates = as_secret(plane.pki.server("jobset", [HOST]), folder / "certs")
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 500},
    }
    found = binaries.require(SET)
    known = manifests(found["jobset-definitions"])
    command = _command(plane, folder, found["jobset"], "jobset", configuration)
    recipe = Recipe("jobset", definitions(known), webhooks(known, {JOBSET}), command, probes, port)
    return Guest(plane, folder, recipe)


def trainer(plane: ControlPlane, folder: Path) -> Guest:
    """Kubeflow Trainer's controller; its runtimes are `runtimes()`. Raises `binaries.Missing`."""
    probes, port = free_port(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    # It has no setting for the folder: it is controller-runtime's own, below the temporary folder.
    as_secret(plane.pki.server("trainer", [HOST]), folder / "k8s-webhook-server" / "serving-certs")
    configuration = {
        "apiVersion": f"config.{TRAINER}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": port},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "controller": {"groupKindConcurrency": {f"TrainJob.{TRAINER}": 5}},  # as released
        "clientConnection": {"qps": 500, "burst": 500},
        "featureGates": {"TrainJobStatus": False},
    }
    found = binaries.require(SET)
    known = manifests(found["trainer-definitions"])
    command = _command(plane, folder, found["trainer-controller-manager"], "trainer", configuration)
    recipe = Recipe(
        "trainer",
        definitions(known),
        webhooks(known, {TRAINER}),
        command,
        probes,
        port,
        {"TMPDIR": str(folder)},
    )
    return Guest(plane, folder, recipe)


def runtimes() -> list[Manifest]:
    """The runtimes that Kubeflow Trainer is released with."""
    known = manifests(binaries.require(SET)["trainer-definitions"])
    return [found for found in known if found["kind"] == RUNTIME.name]


def _command(
    plane: ControlPlane, folder: Path, binary: Path, name: str, configuration: dict[str, Any]
) -> list[str]:
    file = write_private(folder / "config.json", json.dumps(configuration).encode())
    return [str(binary), f"--config={file}", f"--kubeconfig={plane.kubeconfig_of(name, MASTERS)}"]

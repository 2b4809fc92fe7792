"""Names that DI-engine's manifests and its client rely on: labels, ports, variables, names of pods."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from elasticjob.api.v1alpha1.common import TOKEN_SUFFIX

GROUP: Final = "diengine.opendilab.org"
VERSION: Final = "v1alpha1"

CONTAINER: Final = "di-container"
"""The container that ports, resources and GPU ports are written to."""
PORT_NAME: Final = "di-port"
GPU_PORT: Final = "gpu-port"
MASTER_PORT_NAME: Final = "master-port"
MASTER_PORT: Final = 10314
"""Where the ddp learners of several pods meet."""

LABEL_GROUP: Final = "group-name"
LABEL_JOB: Final = "dijob-name"
LABEL_CONTROLLER: Final = "controller-name"
CONTROLLER: Final = "di-operator"
LABEL_ROLE: Final = "replica-type"
LABEL_POD: Final = "pod-name"
LABEL_DDP: Final = "ddp-learner-type"
DDP_MASTER: Final = "ddp-learner-master"
DDP_WORKER: Final = "ddp-learner-worker"
LABEL_REQUEST: Final = f"{GROUP}/request"
"""Which call to di-server made a pod."""
UNANSWERED: Final = f"{GROUP}/unanswered"
"""An annotation of the first pod of such a call until its response is delivered: a digest of the call."""
REQUEST_BODY: Final = f"{GROUP}/request-body"
"""A digest of the body of such a call, for one with an Idempotency-Key."""
REQUEST_PODS: Final = f"{GROUP}/request-pods"
"""How many pods such a call makes."""
REPLACES: Final = f"{GROUP}/replaces"
"""The name of the pod in whose place a pod was made."""

OURS: Final = f"{LABEL_GROUP}={GROUP},{LABEL_CONTROLLER}={CONTROLLER}"
"""The label selector of all pods of DIJobs."""

LONGEST_JOB: Final = 45
"""Characters of a job's name: <job>-ddp-learner-<5> is a Service's name, of at most 63."""
SUFFIX: Final = 5


class Role(StrEnum):
    """What a pod of a job does; the value of its label replica-type."""

    COORDINATOR = "coordinator"
    COLLECTOR = "collector"
    LEARNER = "learner"
    DDP_LEARNER = "ddp-learner"
    AGGREGATOR = "aggregator"


STATUS_KEYS: Final[Mapping[Role, str]] = {
    Role.COORDINATOR: "Coordinator",
    Role.COLLECTOR: "Collector",
    Role.LEARNER: "Learner",
    Role.AGGREGATOR: "Aggregator",
    Role.DDP_LEARNER: "DDPLearner",
}
PORTS: Final[Mapping[Role, tuple[str, int]]] = {
    Role.COORDINATOR: ("COORDINATOR_PORT", 22273),
    Role.COLLECTOR: ("COLLECTOR_PORT", 22270),
    Role.LEARNER: ("LEARNER_PORT", 22271),
    Role.DDP_LEARNER: ("LEARNER_PORT", 22271),
    Role.AGGREGATOR: ("AGGREGATOR_PORT", 22272),
}
"""Role → the variable with its port, and the port where the template names none."""

POD_NAMESPACE: Final = "KUBERNETES_POD_NAMESPACE"
POD_NAME: Final = "KUBERNETES_POD_NAME"
SERVER_URL: Final = "KUBERNETES_SERVER_URL"
SERVER_VERSION: Final = "KUBERNETES_SERVER_API_VERSION"
COORDINATOR_URL: Final = "KUBERNETES_COORDINATOR_URL"
AGGREGATOR_URL: Final = "KUBERNETES_AGGREGATOR_URL"
TOKEN: Final = "DI_SERVER_TOKEN"  # the name of a variable


def coordinator(job: str) -> str:
    """Return the name of a job's coordinator, pod and Service."""
    return f"{job}-{Role.COORDINATOR}"


def replica(job: str, role: Role, suffix: str) -> str:
    """Return the name of another pod of a job; `suffix` has five small letters or digits."""
    return f"{job}-{role}-{suffix}"


def token(job: str) -> str:
    """Return the name of the Secret with a job's token for di-server."""
    return f"{job}-di{TOKEN_SUFFIX}"

"""The pods and services of a DIJob, as manifests: what DI-engine's programs find in them is here. Pure.

A pod is made from its role's template: labels, ports and the variables of every container are added, and the
resources of a request override those of the container di-container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

import msgspec

from elasticjob.api import readings
from elasticjob.api.diengine import names
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.names import (
    CONTAINER,
    DDP_MASTER,
    DDP_WORKER,
    GPU_PORT,
    MASTER_PORT,
    MASTER_PORT_NAME,
    PORT_NAME,
    PORTS,
    Role,
)
from elasticjob.api.v1alpha1.kueue import POD_SET, QUEUE_NAME, QUOTA_GATE, TOPOLOGY_GATE, WORKLOAD_OF
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.owner import HasMetadata, owner_reference
from elasticjob.kube.objects.views import POD, ContainerPort, Pod

FAREWELL: Final = {"preStop": {"exec": {"command": ["sleep", "3"]}}}
"""A deleted replica answers a little longer: DI-engine closes its connection once di-server's list, which it
reads each second, has the replica no more. If the pod is already gone, DI-engine stops reading the list."""
GPU: Final = "nvidia.com/gpu"
STANDARD_LABELS: Final = {
    "app.kubernetes.io/name": "dijob",
    "app.kubernetes.io/managed-by": "elasticjob",
}


BEFORE: Final = "elasticjob.dlrover/before-quota"
"""On pods that have a place in a quota: what their spec said before, as JSON. Kueue adds to it, too."""


class Before(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod could run before it was given a place in a quota."""

    node_selector: dict[str, str] = {}
    tolerations: list[Manifest] = []


_BEFORE: Final = JsonReader(Before)


@dataclass(frozen=True)
class Server:
    """What pods are told of di-server: its URL; with `tokens`, each job has a token of its own in a Secret.

    `version` is a path prefix for clients whose configuration names none, such as /v1alpha2; "" leaves that
    to them.
    """

    url: str = "http://di-server.di-system:8080"
    version: str = ""
    tokens: bool = False


@dataclass(frozen=True)
class Place:
    """A ddp pod's place in its logic learner: all GPUs, those of this pod, those of the pods before it.

    `master` is the pod where processes meet, "" for the first pod. `local_ports`: its processes listen at
    ports counted from the pod's first process, not from the learner's.
    """

    world: int
    local: int
    start: int
    master: str = ""
    local_ports: bool = False

    @property
    def alone(self) -> bool:
        """Whether the logic learner is this pod alone."""
        return self.local == self.world


def pod(
    job: DIJob,
    role: Role,
    name: str,
    server: Server,
    template: Manifest,
    resources: Mapping[str, str] | None = None,
    *,
    place: Place | None = None,
    aggregator: HasMetadata | None = None,
    aggregator_url: str = "",
) -> Manifest:
    """Return a pod of a job."""
    made = deepcopy(template)
    spec: Manifest = made.get("spec") or {}
    given: Manifest = made.get("metadata") or {}
    port, more = _ports(spec, role, place)
    for container in spec.get("containers") or ():
        if container.get("name") == CONTAINER:
            _add_ports(container, port, more)
            _add_resources(container, resources or {})
            if role is not Role.COORDINATOR:
                container["lifecycle"] = FAREWELL | (container.get("lifecycle") or {})
    variables = [*_variables(job, role, name, port, server, place, aggregator_url)]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        container["env"] = _complete(container.get("env") or [], variables)
    if role is not Role.AGGREGATOR and job.spec.volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *deepcopy(job.spec.volumes)]
    if role is Role.COORDINATOR:
        spec.setdefault("restartPolicy", "Never")
    if role is not Role.COORDINATOR and job.metadata.labels.get(QUEUE_NAME):
        spec["schedulingGates"] = _gates(spec)
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    owners = [owner_reference(job, DIJOB)]
    if aggregator is not None:
        owners.append(owner_reference(aggregator, POD, controller=False))
    labels = {**(given.get("labels") or {}), **labels_of(job, role, name, place)}
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": owners,
    }
    if annotations := given.get("annotations"):
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def coordinator(job: DIJob, server: Server) -> Manifest:
    """Return the coordinator of a job."""
    name = names.coordinator(job.metadata.name)
    return pod(job, Role.COORDINATOR, name, server, job.spec.coordinator.template)


def labels_of(job: DIJob, role: Role, name: str, place: Place | None = None) -> dict[str, str]:
    """Return the labels of a pod."""
    labels = {
        **STANDARD_LABELS,
        "app.kubernetes.io/component": role.value,
        names.LABEL_GROUP: names.GROUP,
        names.LABEL_JOB: job.metadata.name,
        names.LABEL_CONTROLLER: names.CONTROLLER,
        names.LABEL_ROLE: role.value,
        names.LABEL_POD: name,
    }
    if place is not None and not place.alone:
        labels[names.LABEL_DDP] = DDP_WORKER if place.master else DDP_MASTER
    return labels


def service(pod: Pod) -> Manifest:
    """Return the Service of a pod: of its name, owners and labels, with its ports."""
    about = pod.metadata
    ports = [
        {"name": port.name, "port": port.container_port, "targetPort": port.container_port}
        for port in _own_ports(pod)
    ]
    owners = [
        {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": each.uid}
        | ({"controller": True, "blockOwnerDeletion": True} if each.controller else {})
        for each in about.owner_references
    ]
    chosen = {name: about.labels[name] for name in SELECTING if name in about.labels}
    return {
        "metadata": {
            "name": about.name,
            "namespace": about.namespace,
            "labels": chosen | {**STANDARD_LABELS},
            "ownerReferences": owners,
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": chosen,
            "ports": ports,
        },
    }


SELECTING: Final = (
    names.LABEL_GROUP,
    names.LABEL_JOB,
    names.LABEL_CONTROLLER,
    names.LABEL_ROLE,
    names.LABEL_POD,
    names.LABEL_DDP,
)


def role_of(pod: Pod) -> Role | None:
    """Return the role of a pod; None for one that is not of a DIJob."""
    try:
        return Role(pod.metadata.labels.get(names.LABEL_ROLE, ""))
    except ValueError:
        return None


def port_of(pod: Pod) -> int:
    """Return where a pod listens: its di-port, or that of its role."""
    declared = (port.container_port for port in _own_ports(pod) if port.name == PORT_NAME)
    role = role_of(pod) or Role.LEARNER
    return next(declared, PORTS[role][1])


def url_of(pod: Pod) -> str:
    """Return <pod>.<namespace>:<port>, the form that DI-engine's client reads."""
    return f"{pod.metadata.name}.{pod.metadata.namespace}:{port_of(pod)}"


def process_urls(pod: Pod) -> list[str]:
    """Return the URL of each process of a ddp pod, di-port first."""
    about = pod.metadata
    named = {port.name: port.container_port for port in _own_ports(pod)}
    ports = [port_of(pod), *(port for name, port in named.items() if name.startswith(GPU_PORT))]
    return [f"{about.name}.{about.namespace}:{port}" for port in ports]


def world_of(pod: Pod) -> int:
    """Return the GPUs of the logic learner that a ddp pod is of."""
    return readings.number(_variable(pod, "WORLD_SIZE"), 1)


def start_of(pod: Pod) -> int:
    """Return the rank of a ddp pod's first process in its logic learner."""
    return readings.number(_variable(pod, "START_RANK"))


def has_token(pod: Pod) -> bool:
    """Whether a pod was made with a token for di-server."""
    return any(each.name == names.TOKEN for container in pod.spec.containers for each in container.env)


def asked_of(pod: Pod) -> dict[str, str]:
    """Return the resources of a pod's container di-container."""
    main = next((each for each in pod.spec.containers if each.name == CONTAINER), None)
    return {name: str(amount) for name, amount in main.resources.requests.items()} if main else {}


def replacement(old: Manifest, name: str) -> Manifest:
    """Return a pod in the place of another, not bound to a machine."""
    spec = deepcopy(old["spec"])
    spec.pop("nodeName", None)
    before, about = old["metadata"]["name"], old["metadata"]
    labels, annotations = dict(about.get("labels") or {}), dict(about.get("annotations") or {})
    if annotations.pop(WORKLOAD_OF, None):  # the place is still that of the old one
        if before_it := readings.decode(annotations.pop(BEFORE, None), _BEFORE):
            spec |= {"nodeSelector": before_it.node_selector, "tolerations": before_it.tolerations}
        spec["schedulingGates"] = _gates(spec)
        labels.pop(POD_SET, None)
    _forget_account(spec)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            if variable["name"] == names.POD_NAME:
                variable["value"] = name
    kept = {key: value for key, value in annotations.items() if key != names.UNANSWERED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": about["namespace"],
            "labels": {**labels, names.LABEL_POD: name},
            "annotations": kept | ({names.REPLACES: before} if before != name else {}),
            "ownerReferences": about.get("ownerReferences", []),
        },
        "spec": spec,
    }


def scheduling_annotation(pod: Pod) -> dict[str, str]:
    """Return the annotation that keeps where a pod could run before it is given a place."""
    now = Before(pod.spec.node_selector, pod.spec.tolerations)
    return {BEFORE: msgspec.json.encode(now).decode()}


def before(pod: Pod) -> Before:
    """Return where a pod could run before it was given a place."""
    found = readings.decode(pod.metadata.annotations.get(BEFORE), _BEFORE)
    return found or Before(pod.spec.node_selector, pod.spec.tolerations)


def _gates(spec: Manifest) -> list[Manifest]:
    """The gates of a pod that waits for quota."""
    ours = (QUOTA_GATE, TOPOLOGY_GATE)  # Kueue's own cannot be added later: it stays where Kueue needs it
    others = (gate for gate in spec.get("schedulingGates") or () if gate.get("name") not in ours)
    return [*others, *({"name": gate} for gate in ours)]


def _forget_account(spec: Manifest) -> None:
    """Take out the volume that the server added with the token of the service account: it adds it again."""
    added = {
        each["name"] for each in spec.get("volumes") or () if each["name"].startswith("kube-api-access-")
    }
    spec["volumes"] = [each for each in spec.get("volumes") or () if each["name"] not in added]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.get("volumeMounts") or ()
        container["volumeMounts"] = [each for each in mounts if each["name"] not in added]


def _ports(spec: Manifest, role: Role, place: Place | None) -> tuple[int, list[tuple[str, int]]]:
    """The port of a pod, and the names and numbers of the others."""
    containers: list[Manifest] = spec.get("containers") or []
    main: Manifest = next((each for each in containers if each.get("name") == CONTAINER), {})
    declared = (each["containerPort"] for each in main.get("ports") or () if each.get("name") == PORT_NAME)
    port: int = next(declared, PORTS[role][1])
    more = [(f"{GPU_PORT}-{index}", port + index) for index in range(1, place.local if place else 1)]
    if place is not None and not place.alone and not place.master:
        more.append((MASTER_PORT_NAME, MASTER_PORT))
    return port, more


def _add_ports(container: Manifest, port: int, more: Sequence[tuple[str, int]]) -> None:
    ports: list[Manifest] = list(container.get("ports") or ())
    present = {each.get("name") for each in ports}
    wanted = [(PORT_NAME, port), *more]
    container["ports"] = ports + [
        {"name": name, "containerPort": number} for name, number in wanted if name not in present
    ]


def _add_resources(container: Manifest, resources: Mapping[str, str]) -> None:
    if not resources:
        return
    given: Manifest = container.get("resources") or {}
    container["resources"] = {
        **given,
        "requests": {**(given.get("requests") or {}), **resources},
        "limits": {**(given.get("limits") or {}), **resources},
    }


def _variables(
    job: DIJob,
    role: Role,
    name: str,
    port: int,
    server: Server,
    place: Place | None,
    aggregator_url: str,
) -> Iterator[Manifest]:
    """The variables of every container of a pod, in a fixed order."""
    values = {
        PORTS[role][0]: str(port - place.start if place and place.local_ports else port),
        names.POD_NAMESPACE: job.metadata.namespace,
        names.POD_NAME: name,
        names.SERVER_URL: server.url,
    }
    if role is Role.COORDINATOR:
        values[names.COORDINATOR_URL] = f"{name}.{job.metadata.namespace}:{port}"
    if aggregator_url:
        values[names.AGGREGATOR_URL] = aggregator_url
    if place is not None:
        values |= {
            "WORLD_SIZE": str(place.world),
            "LOCAL_WORLD_SIZE": str(place.local),
            "START_RANK": str(place.start),
            "MASTER_ADDR": place.master or "localhost",
            "MASTER_PORT": str(MASTER_PORT),
        }
    if server.tokens:
        secret = {"name": names.token(job.metadata.name), "key": "token"}
        yield {"name": names.TOKEN, "valueFrom": {"secretKeyRef": secret}}
        values[names.SERVER_VERSION] = f"/t/$({names.TOKEN}){server.version or '/v1alpha1'}"
    elif server.version:
        values[names.SERVER_VERSION] = server.version
    yield from ({"name": key, "value": value} for key, value in values.items())


def _complete(given: Iterable[Manifest], ours: Sequence[Manifest]) -> list[Manifest]:
    """The variables of a template, then ours, which win."""
    known = {each["name"] for each in ours}
    return [*(each for each in given if each.get("name") not in known), *ours]


def _own_ports(pod: Pod) -> list[ContainerPort]:
    """The ports that Services name: those of di-container that have a name of ours."""
    main = next((each for each in pod.spec.containers if each.name == CONTAINER), None)
    named = (PORT_NAME, MASTER_PORT_NAME)
    ports = (
        [port for port in main.ports if port.name in named or port.name.startswith(GPU_PORT)] if main else []
    )
    if any(port.name == PORT_NAME for port in ports):
        return ports
    return [ContainerPort(container_port=PORTS[role_of(pod) or Role.LEARNER][1], name=PORT_NAME), *ports]


def _variable(pod: Pod, name: str) -> str:
    """The value of a variable in a pod's containers, "" where none has it."""
    values = (each.value for container in pod.spec.containers for each in container.env if each.name == name)
    return next(values, "")

"""Validation of the pod templates of an ElasticJob."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.core.shape import shape_problems, unknown_fields
from elasticjob.api.roles import is_master
from elasticjob.api.v1alpha1.checks.common import (
    is_label,
    label_problems,
    parse_amounts,
    resource_name_problems,
    resource_problems,
)
from elasticjob.api.v1alpha1.common import AGENT, AGENT_IMAGE, AGENT_PLACE
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ReplicaSpec
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem


def templates_have_their_shape(job: ElasticJob) -> Iterator[Problem]:
    """Templates have the right types; all later checks rely on it."""
    for role, spec in job.spec.replica_specs.items():
        yield from shape_problems(f"spec.replicaSpecs[{role}].template", spec.template, POD_TEMPLATE_SPEC)


def templates_can_run(job: ElasticJob) -> Iterator[Problem]:
    """A pod needs containers with images; only the master has a default."""
    for role, spec in job.spec.replica_specs.items():
        path = f"spec.replicaSpecs[{role}].template.spec"
        containers: list[Manifest] = spec.pod.get("containers") or []
        if not containers and not is_master(role):
            yield Problem(f"{path}.containers", "there is no container: write one, with a name and an image")
        for field in ("initContainers", "containers"):
            for index, container in enumerate(spec.pod.get(field) or ()):
                yield from container_problems(f"{path}.{field}[{index}]", container, is_master(role))
        yield from repeated_containers(path, spec.pod)
        yield from mounts_without_volume(path, spec.pod)


def container_problems(path: str, container: Manifest, image_is_known: bool) -> Iterator[Problem]:
    """Check the image, name, and resources of one container."""
    image = container.get("image") or ""
    if not image and not image_is_known:
        yield Problem(f"{path}.image", "there is no image: write one, such as python:3.11")
    elif image != image.strip():
        yield Problem(f"{path}.image", f"{image!r} has blanks around it: write {image.strip()!r}")
    if not is_label(container.get("name") or ""):
        yield Problem(
            f"{path}.name", f"{container.get('name') or ''!r} is not a container name: write main or the like"
        )
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    yield from resource_problems(f"{path}.resources.requests", requests)
    yield from resource_problems(f"{path}.resources.limits", limits)
    wanted, most = parse_amounts(requests), parse_amounts(limits)
    for excess in wanted.over(most) if wanted is not None and most is not None else ():
        yield Problem(
            f"{path}.resources.requests[{excess.name}]",
            f"{excess.wanted} is more than the limit {excess.limit}: lower the request or raise the limit",
        )


def unknown_resources(path: str, container: Manifest) -> Iterator[Problem]:
    """Check the names of the resources of a container."""
    for field in ("requests", "limits"):
        yield from resource_name_problems(
            f"{path}.{field}", (container.get("resources") or {}).get(field) or ()
        )


def repeated_containers(path: str, pod: Manifest) -> Iterator[Problem]:
    """Check for container names that a pod has twice."""
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            name = container.get("name") or ""
            if name and name in seen:
                yield Problem(
                    f"{path}.{field}[{index}].name", f"two containers are called {name}: rename one"
                )
            seen.add(name)


def mounts_without_volume(path: str, pod: Manifest) -> Iterator[Problem]:
    """Check for mounts of volumes that the pod does not have."""
    volumes = {volume.get("name") for volume in pod.get("volumes") or ()}
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            for place, mount in enumerate(container.get("volumeMounts") or ()):
                if mount.get("name") not in volumes:
                    yield Problem(
                        f"{path}.{field}[{index}].volumeMounts[{place}].name",
                        f"the pod has no volume {mount.get('name')!r}: add it to {path}.volumes",
                    )


def what_the_server_would_refuse_later(job: ElasticJob, old: ElasticJob | None = None) -> Iterator[Problem]:
    """Find in new and changed templates what would keep their pods from being created or started.

    Templates that an update keeps are not looked at: an earlier release may have accepted them.
    """
    before = old.spec.replica_specs if old is not None else {}
    for role, spec in job.spec.replica_specs.items():
        if role in before and before[role].template == spec.template:
            continue
        path = f"spec.replicaSpecs[{role}].template"
        yield from unknown_fields(path, spec.template, POD_TEMPLATE_SPEC)
        yield from label_problems(f"{path}.metadata.labels", spec.labels)
        yield from agent_problems(path, spec)
        yield from label_problems(f"{path}.spec.nodeSelector", spec.pod.get("nodeSelector") or {})
        for field in ("initContainers", "containers"):
            for index, container in enumerate(spec.pod.get(field) or ()):
                yield from image_problems(f"{path}.spec.{field}[{index}].image", container.get("image") or "")
                yield from port_problems(f"{path}.spec.{field}[{index}].ports", container)
                yield from unknown_resources(f"{path}.spec.{field}[{index}].resources", container)


def agent_problems(path: str, role: ReplicaSpec) -> Iterator[Problem]:
    """Check the image that brings the agent, and that its container and its place are free."""
    image = role.annotations.get(AGENT_IMAGE)
    if not image or any(volume.get("name") == AGENT for volume in role.pod.get("volumes") or ()):
        return
    if IMAGE.fullmatch(image) is None:
        yield Problem(
            f"{path}.metadata.annotations[{AGENT_IMAGE}]",
            f"{image!r} is not an image name: write the one of elasticjob/agent in your registry",
        )
    for field in ("initContainers", "containers"):
        for index, container in enumerate(role.pod.get(field) or ()):
            if container.get("name") == AGENT:
                yield Problem(
                    f"{path}.spec.{field}[{index}].name",
                    f"{AGENT_IMAGE} brings a container {AGENT}: rename this one",
                )
            for place, mount in enumerate(container.get("volumeMounts") or ()):
                there = (mount.get("mountPath") or "").rstrip("/")
                if container is role.main_container and there == AGENT_PLACE:
                    yield Problem(
                        f"{path}.spec.{field}[{index}].volumeMounts[{place}].mountPath",
                        f"{AGENT_IMAGE} brings the agent to {AGENT_PLACE}: mount this elsewhere",
                    )


IMAGE: Final = re.compile(
    r"((?P<host>[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
    r"(?P<port>:[0-9]+)?/)?"
    r"(?P<path>[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*)"
    r"(?P<tag>:\w[\w.-]{0,127})?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
"""[host[:port]/]path[:tag][@digest], as container runtimes read it."""


def image_problems(path: str, image: str) -> Iterator[Problem]:
    """Check that a runtime can read the name of an image; blanks around it are found elsewhere."""
    if image and image == image.strip() and IMAGE.fullmatch(image) is None:
        yield Problem(
            path,
            f"{image!r} is not an image name: write small letters, such as registry.example/team/train:1.0",
        )


LARGEST_PORT: Final = 65535
LONGEST_PORT_NAME: Final = 15


def port_problems(path: str, container: Manifest) -> Iterator[Problem]:
    """Check the numbers of ports, and their names, of which a container has each once."""
    seen: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        here, name = f"{path}[{index}]", port.get("name") or ""
        for field, least in (("containerPort", 1), ("hostPort", 0)):
            number = port.get(field)
            if number is not None and not least <= number <= LARGEST_PORT:
                yield Problem(f"{here}.{field}", f"{number} is not a port: write {least} to {LARGEST_PORT}")
        if name and not is_port_name(name):
            yield Problem(
                f"{here}.name",
                f"{name!r} is not a port's name: write at most {LONGEST_PORT_NAME} small letters, digits and "
                "single inner dashes, with a letter",
            )
        if name in seen:
            yield Problem(f"{here}.name", f"two ports are called {name}: rename one")
        seen |= {name} - {""}


def is_port_name(name: str) -> bool:
    """Whether `name` is an IANA service name, as ports require."""
    return (
        len(name) <= LONGEST_PORT_NAME
        and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) is not None
        and re.search(r"[a-z]", name) is not None
    )

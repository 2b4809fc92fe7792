"""Validation of the pod templates of an ElasticJob."""

from __future__ import annotations

from collections.abc import Iterator

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.core.shape import shape_problems
from elasticjob.api.v1alpha1.checks.common import is_label, parsed, resource_problems
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, is_master
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
    wanted, most = parsed(requests), parsed(limits)
    for excess in wanted.over(most) if wanted is not None and most is not None else ():
        yield Problem(
            f"{path}.resources.requests[{excess.name}]",
            f"{excess.wanted} is more than the limit {excess.limit}: lower the request or raise the limit",
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
    volumes = [volume.get("name") for volume in pod.get("volumes") or ()]
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            for place, mount in enumerate(container.get("volumeMounts") or ()):
                if mount.get("name") not in volumes:
                    yield Problem(
                        f"{path}.{field}[{index}].volumeMounts[{place}].name",
                        f"the pod has no volume {mount.get('name')!r}: add it to {path}.volumes",
                    )

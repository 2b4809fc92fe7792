"""What is refused in a DIJob or an AggregatorConfig, and what is accepted with a warning. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Final

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.core.shape import shape_problems, unknown_fields
from elasticjob.api.diengine.aggregatorconfig import AggregatorConfig
from elasticjob.api.diengine.dijob import DIJob
from elasticjob.api.diengine.gpus import MOST
from elasticjob.api.diengine.names import CONTAINER, LONGEST_JOB, Role
from elasticjob.api.diengine.pods import GPU
from elasticjob.api.resources import Devices, MalformedQuantity
from elasticjob.api.v1alpha1.checks.advice import queues_take_no_job
from elasticjob.api.v1alpha1.checks.common import DNS_LABEL_OF_A_SERVICE, label_problems, volume_problems
from elasticjob.api.v1alpha1.checks.templates import (
    container_problems,
    image_problems,
    mounts_without_volume,
    port_problems,
    repeated_containers,
    unknown_resources,
)
from elasticjob.api.v1alpha1.kueue import queue_stays, unreadable_limit
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem

API_VERSION: Final = re.compile(r"(?<![A-Za-z_])api_version(?![A-Za-z_])")
AFTER_ITS_START: Final = "while the job runs: delete it and create it again"
WITH_TEMPLATE: Final = (Role.COORDINATOR, Role.COLLECTOR, Role.LEARNER)


def problems(new: DIJob, old: DIJob | None = None) -> list[Problem]:
    """Return the errors of a job that is created, or updated from `old`.

    A job that an earlier release accepted can still be deleted, and its status be written.
    """
    if old is not None and new.metadata.deletion_timestamp is not None:
        return []
    begun = old is not None and old.status.phase is not None and not old.status.phase.is_terminal
    moved = list(queue_stays(old, new, old.status.conditions, AFTER_ITS_START)) if old and begun else []
    moved += unreadable_limit(old, new)
    if old is not None and new.spec == old.spec:
        return moved
    volumes = {each["name"] for each in new.spec.volumes if isinstance(each.get("name"), str)}
    found = [problem for path, one in templates(new) for problem in template_problems(path, one, volumes)]
    return [*moved, *_name(new), *found, *(() if found else _volumes(new))]


def config_problems(config: AggregatorConfig, old: AggregatorConfig | None = None) -> list[Problem]:
    """Return the errors of an AggregatorConfig that is created or changed."""
    if old is not None and config.spec == old.spec:
        return []
    return list(template_problems("spec.aggregator.template", config.spec.aggregator.template))


def template_problems(path: str, template: Manifest, volumes: Set[str] = frozenset()) -> Iterator[Problem]:
    """Find what keeps pods of a template from being made; `volumes` are those that the job adds."""
    shape = list(shape_problems(path, template, POD_TEMPLATE_SPEC))
    yield from shape
    if shape:
        return
    pod = template.get("spec") or {}
    if not pod.get("containers"):
        what = f"there is no container: write one called {CONTAINER}, with an image"
        yield Problem(f"{path}.spec.containers", what)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            here = f"{path}.spec.{field}[{index}]"
            yield from container_problems(here, container, image_is_known=False)
            yield from image_problems(f"{here}.image", container.get("image") or "")
            yield from port_problems(f"{here}.ports", container)
            yield from unknown_resources(f"{here}.resources", container)
            yield from _too_many_gpus(f"{here}.resources", container)
    yield from repeated_containers(f"{path}.spec", pod)
    own = [*(pod.get("volumes") or ()), *({"name": name} for name in volumes)]
    yield from mounts_without_volume(f"{path}.spec", {**pod, "volumes": own})
    yield from label_problems(f"{path}.metadata.labels", (template.get("metadata") or {}).get("labels") or {})
    yield from label_problems(f"{path}.spec.nodeSelector", pod.get("nodeSelector") or {})


def _too_many_gpus(path: str, container: Manifest) -> Iterator[Problem]:
    for field in ("requests", "limits"):
        raw = ((container.get("resources") or {}).get(field) or {}).get(GPU)
        try:
            asked = Devices.parse(raw or 0)
        except MalformedQuantity:
            continue  # container_problems has a sentence for it
        if asked.value > MOST:
            yield Problem(
                f"{path}.{field}[{GPU}]", f"{raw} is more than a pod can have: write at most {MOST}"
            )


def warnings(new: DIJob, old: DIJob | None) -> list[str]:
    """Return what is accepted without the effect that it seems to have."""
    found = [str(problem) for path, one in templates(new) for problem in template_advice(path, one)]
    queued = [str(problem) for problem in queues_take_no_job(new)]
    if old is None or queued != [str(problem) for problem in queues_take_no_job(old)]:
        found += queued
    if old is not None:
        before = dict(templates(old))
        changed = [path for path, one in templates(new) if before.get(path, one) != one]
        found += [f"{path}: pods that exist keep the old template" for path in changed]
    return found


def template_advice(path: str, template: Manifest) -> Iterator[Problem]:
    """Find fields that Kubernetes does not know, and the lack of the container that is given ports."""
    yield from unknown_fields(path, template, POD_TEMPLATE_SPEC)
    yield from _leaves_out_the_token(path, template)
    names = [each.get("name") for each in (template.get("spec") or {}).get("containers") or ()]
    if names and CONTAINER not in names:
        what = f"no container is called {CONTAINER}: none is given ports, and none the resources of a request"
        yield Problem(f"{path}.spec.containers", what)


def _leaves_out_the_token(path: str, template: Manifest) -> Iterator[Problem]:
    """Find a configuration of DI-engine that says the version of di-server's calls itself, where it shows."""
    for index, container in enumerate((template.get("spec") or {}).get("containers") or ()):
        values = {f"env[{each.get('name')}]": each.get("value") for each in container.get("env") or ()}
        lines = {field: container.get(field) or () for field in ("command", "args")} | values
        for field, line in lines.items():
            if API_VERSION.search(line if isinstance(line, str) else " ".join(map(str, line or ()))):
                what = "an api_version of its own leaves out the job's token, and di-server refuses the calls"
                yield Problem(f"{path}.spec.containers[{index}].{field}", f"{what}: leave it out")


def _name(job: DIJob) -> Iterator[Problem]:
    name = job.metadata.name
    if len(name) > LONGEST_JOB:
        what = f"has {len(name)} characters: write at most {LONGEST_JOB}, since pods add -ddp-learner-xxxxx"
        yield Problem("metadata.name", what)
    if DNS_LABEL_OF_A_SERVICE.fullmatch(name) is None:
        what = f"{name!r} is not the name of a Service: write small letters, digits and inner dashes"
        yield Problem("metadata.name", what)


def _volumes(job: DIJob) -> Iterator[Problem]:
    yield from volume_problems("spec.volumes", job.spec.volumes)
    seen = {name for volume in job.spec.volumes if isinstance(name := volume.get("name"), str) and name}
    for path, template in templates(job):
        for index, volume in enumerate((template.get("spec") or {}).get("volumes") or ()):
            if volume.get("name") in seen:
                what = f"spec.volumes has a volume {volume.get('name')} too: rename one"
                yield Problem(f"{path}.spec.volumes[{index}].name", what)


def templates(job: DIJob) -> list[tuple[str, Manifest]]:
    """The templates that a job has, with their paths."""
    given = ((role, job.spec.template(role)) for role in WITH_TEMPLATE)
    return [(f"spec.{role}.template", one.template) for role, one in given if one is not None]

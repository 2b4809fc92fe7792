"""The main container of a pod, as its annotation says: its end alone is the end of its node.

The annotation has the name from the job's template, where it is the one named `main`, else the first. A
webhook that injects a sidecar may put that before it.
"""

from __future__ import annotations

from elasticjob.api.v1alpha1.common import MAIN_CONTAINER
from elasticjob.kube.objects.views import Container, ContainerStatus, ContainerTerminated, Pod


def main_container(pod: Pod) -> Container | None:
    """Return the container that trains; without the annotation the one named `main`, else the first."""
    by_name = {container.name: container for container in pod.spec.containers}
    names = (pod.metadata.annotations.get(MAIN_CONTAINER, ""), "main", *by_name)
    return next((by_name[name] for name in names if name in by_name), None)


def main_status(pod: Pod) -> ContainerStatus | None:
    """Return the status of the main container, None before the kubelet wrote one."""
    main = main_container(pod)
    return next((s for s in pod.status.container_statuses if main and s.name == main.name), None)


def main_end(pod: Pod) -> ContainerTerminated | None:
    """Return the end of the main container, None if it runs, or never ran."""
    status = main_status(pod)
    return status.state.terminated if status else None

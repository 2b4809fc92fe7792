"""The main container of a pod, the one named `main`, else the first: its end alone is the end of its node."""

from __future__ import annotations

from elasticjob.kube.objects.views import Container, ContainerStatus, ContainerTerminated, Pod


def main_container(pod: Pod) -> Container | None:
    """Return the container that trains: the one named `main`, else the first."""
    named = (container for container in pod.spec.containers if container.name == "main")
    return next(named, pod.spec.containers[0] if pod.spec.containers else None)


def main_status(pod: Pod) -> ContainerStatus | None:
    """Return the status of the main container, None before the kubelet wrote one."""
    main = main_container(pod)
    return next((s for s in pod.status.container_statuses if main and s.name == main.name), None)


def main_end(pod: Pod) -> ContainerTerminated | None:
    """Return the end of the main container, None if it runs, or never ran."""
    status = main_status(pod)
    return status.state.terminated if status else None

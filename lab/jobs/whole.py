"""Jobs that run on a whole cluster: pods of one Python program, which waits unless it is told what to do."""

from __future__ import annotations

from typing import Any

from elasticjob.kube.objects.kinds import Manifest
from lab.jobs import job

WAITS = "import signal; signal.sigwait({signal.SIGTERM})"


def role(
    replicas: int = 2, program: str = WAITS, *, memory: str = "", image: str = "python:3", **more: Any
) -> Manifest:
    """Return a role whose nodes run a program."""
    resources = {"limits": {"memory": memory}} if memory else None
    return job.role(["python", "-c", program], replicas, image=image, resources=resources, **more)


def container(program: str = WAITS) -> Manifest:
    """Return the container of such a role."""
    return dict(role(program=program)["template"]["spec"]["containers"][0])


def local(worker: Manifest | None = None, **more: Any) -> Manifest:
    """Return the spec of a job without a master, of a role or of `role(**more)`: its pods decide."""
    return {"distributionStrategy": "Local", "replicaSpecs": {"worker": worker or role(**more)}}

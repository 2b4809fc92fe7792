"""Jobs that run on a whole cluster: pods of one Python program, which waits unless it is told what to do."""

from __future__ import annotations

from typing import Any

from elasticjob.kube.objects.kinds import Manifest

WAITS = "import signal; signal.sigwait({signal.SIGTERM})"


def container(program: str = WAITS, memory: str = "", image: str = "python:3") -> Manifest:
    made: Manifest = {"name": "main", "image": image, "command": ["python", "-c", program]}
    return made | ({"resources": {"limits": {"memory": memory}}} if memory else {})


def role(
    replicas: int = 2, program: str = WAITS, *, memory: str = "", image: str = "python:3", **more: Any
) -> Manifest:
    pod = {"containers": [container(program, memory, image)], "terminationGracePeriodSeconds": 5}
    return {"replicas": replicas, "template": {"spec": pod}, **more}


def local(**more: Any) -> Manifest:
    """A job without a master: its pods decide."""
    return {"distributionStrategy": "Local", "replicaSpecs": {"worker": role(**more)}}

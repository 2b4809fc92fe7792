"""A container that needs more memory than its limit: the kernel kills it, and its successor gets more."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest

from elasticjob import __version__
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.kinds import Manifest
from tests.node.conftest import READY, Site
from tests.node.stage import RESTRICTED, UNPRIVILEGED
from tests.node.timeline import Row

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

HUNGRY: Final = "food = bytearray(b'x') * (60 << 20); print(len(food), flush=True)"
"""Needs more than 60 MiB, a little less than 96 with the interpreter."""


async def test_a_container_out_of_memory_comes_back_with_twice_as_much(site: Site, home: str) -> None:
    began = time.time()
    await site.kubectl.apply(hungry(home, ["python3", "-c", HUNGRY]))
    await site.kubectl("-n", home, "wait", "--for=condition=Complete", "elasticjob/hungry", READY)
    plans = await listed(site, home, "scaleplans")
    pods = {pod["metadata"]["name"]: pod for pod in await listed(site, home, "pods")}
    took = time.time() - began
    site.rows.append(Row(0.0, "OOM-kill of a container", "limits.memory: 48Mi, the program needs 70", took))
    assert [plan["spec"]["reason"] for plan in plans] == [
        "hungry-worker-0 was OOMKilled at 48Mi: worker gets 96Mi"
    ]
    assert pods["hungry-worker-0-1"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "96Mi"}
    job = json.loads(await site.kubectl("-n", home, "get", "elasticjob", "hungry", "-o", "json"))
    assert job["status"]["restarts"] == 1


def hungry(namespace: str, command: list[str]) -> Manifest:
    """Return a job of one pod with 48Mi."""
    container: Manifest = {
        "name": "main",
        "image": f"elasticjob/trainer:{__version__}",
        "command": command,
        "resources": {"limits": {"memory": "48Mi"}},
        "securityContext": UNPRIVILEGED,
    }
    worker = {
        "replicas": 1,
        "restartCount": 2,
        "template": {"spec": {"containers": [container], "securityContext": RESTRICTED}},
    }
    return {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": "hungry", "namespace": namespace},
        "spec": {"distributionStrategy": "Local", "replicaSpecs": {"worker": worker}},
    }


async def listed(site: Site, namespace: str, kind: str) -> list[dict[str, Any]]:
    """Return the objects of a kind."""
    found: list[dict[str, Any]] = json.loads(await site.kubectl("-n", namespace, "get", kind, "-o", "json"))[
        "items"
    ]
    return found
